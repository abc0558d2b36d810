! Weir for Fortran: compile this file with your program.
!
! The functions are looked up when they are called and do nothing when the program runs without Weir, so
! a program that uses this module builds and runs everywhere. Works with LD_PRELOAD=libweir.so and with
! -lweir. (With a C library older than glibc 2.34 link with -ldl.)
module weir
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: weir_version, weir_active, weir_phase_begin, weir_phase_begin_sized, weir_phase_end, weir_expect
  public :: weir_set_application, weir_characteristic_time, weir_io_ratio, weir_share, weir_expected_wait
  public :: weir_shuffle_cost, weir_acceptable_delay, weir_allocation, weir_flush

  abstract interface
    function text_function() bind(c)
      import :: c_ptr
      type(c_ptr) :: text_function
    end function
    function plain_function() bind(c)
      import :: c_int
      integer(c_int) :: plain_function
    end function
    function named_function(name) bind(c)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: named_function
    end function
    function sized_function(name, bytes) bind(c)
      import :: c_int, c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: bytes
      integer(c_int) :: sized_function
    end function
    function expecting_function(period_s, bytes) bind(c)
      import :: c_int, c_double, c_int64_t
      real(c_double), value :: period_s
      integer(c_int64_t), value :: bytes
      integer(c_int) :: expecting_function
    end function
    function number_function() bind(c)
      import :: c_double
      real(c_double) :: number_function
    end function
    function file_number_function(file) bind(c)
      import :: c_double, c_ptr
      type(c_ptr), value :: file
      real(c_double) :: file_number_function
    end function
    function allocation_function(file, aggregators, stripes) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: file
      integer(c_int), intent(out) :: aggregators, stripes
      integer(c_int) :: allocation_function
    end function
    function handle_function(file) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: file
      type(c_ptr) :: handle_function
    end function
  end interface

  interface
    function dlsym(handle, name) bind(c, name='dlsym')
      import :: c_ptr, c_char, c_funptr
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: dlsym
    end function
    function strlen(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: strlen
    end function
  end interface

contains

  ! The address of a function of the library; not associated when there is none.
  function found(name)
    character(len=*), intent(in) :: name
    type(c_funptr) :: found
    found = dlsym(c_null_ptr, name // c_null_char)
  end function

  ! Version of the library, empty without it.
  function weir_version() result(version)
    character(len=:), allocatable :: version
    procedure(text_function), pointer :: f
    character(kind=c_char), pointer :: letters(:)
    type(c_funptr) :: address
    type(c_ptr) :: text
    integer :: i
    version = ''
    address = found('weir_version')
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    text = f()
    call c_f_pointer(text, letters, [strlen(text)])
    do i = 1, size(letters)
      version = version // letters(i)
    end do
  end function

  ! Whether Weir is measuring this process now.
  logical function weir_active()
    weir_active = plain('weir_active') == 1
  end function

  ! An I/O phase begins; all I/O of this process up to weir_phase_end belongs to it. Marks do not nest: another
  ! weir_phase_begin before that ends the phase and begins the next.
  subroutine weir_phase_begin(name)
    character(len=*), intent(in), optional :: name
    integer :: ignored
    if (present(name)) then
      ignored = named('weir_phase_begin', name)
    else
      ignored = named('weir_phase_begin', '')
    end if
  end subroutine

  ! As weir_phase_begin, and says how many bytes this process will move in the phase; 0 if that is not known. One process
  ! may say it for all, if the others say 0.
  subroutine weir_phase_begin_sized(name, bytes)
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: bytes
    procedure(sized_function), pointer :: f
    type(c_funptr) :: address
    integer :: ignored
    address = found('weir_phase_begin_sized')
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    ignored = f(trim(name) // c_null_char, max(bytes, 0_c_int64_t))
  end subroutine

  ! The I/O phases of this program will begin every period_s seconds, and this process will move so many bytes in each; 0
  ! where that is not known. One process may say the bytes for all, if the others say 0.
  subroutine weir_expect(period_s, bytes)
    real(c_double), intent(in) :: period_s
    integer(c_int64_t), intent(in) :: bytes
    procedure(expecting_function), pointer :: f
    type(c_funptr) :: address
    integer :: ignored
    address = found('weir_expect')
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    ignored = f(period_s, max(bytes, 0_c_int64_t))
  end subroutine

  ! The I/O phase ends.
  subroutine weir_phase_end()
    integer :: ignored
    ignored = plain('weir_phase_end')
  end subroutine

  ! Names the application in the profile.
  subroutine weir_set_application(name)
    character(len=*), intent(in) :: name
    integer :: ignored
    ignored = named('weir_set_application', name)
  end subroutine

  ! Mean time in seconds between the starts of this process's I/O phases so far; negative if unknown.
  real(c_double) function weir_characteristic_time()
    weir_characteristic_time = number('weir_characteristic_time')
  end function

  ! Share of this process's time so far that was I/O; negative if unknown.
  real(c_double) function weir_io_ratio()
    weir_io_ratio = number('weir_io_ratio')
  end function

  ! Share of its storage that this job has now: 1 while no other job limits it, 0 while it has no turn, negative when nobody
  ! coordinates it, and before its first I/O of some size.
  real(c_double) function weir_share()
    weir_share = number('weir_share')
  end function

  ! Seconds until this job should be able to go on, as its coordinator has said last; 0 if it may go.
  real(c_double) function weir_expected_wait()
    weir_expected_wait = max(number('weir_expected_wait'), 0.0_c_double)
  end function

  ! Seconds that this process spent in its latest collective call on the file for exchanging data with other processes and
  ! waiting for them; negative if unknown. `file` is the handle of mpif.h and `use mpi`; with mpi_f08 it is file%MPI_VAL.
  real(c_double) function weir_shuffle_cost(file)
    integer, intent(in) :: file
    weir_shuffle_cost = file_number('weir_shuffle_cost', file)
  end function

  ! Seconds by which this process could have been later in its latest collective call on the file without making the call
  ! longer; negative if unknown.
  real(c_double) function weir_acceptable_delay(file)
    integer, intent(in) :: file
    weir_acceptable_delay = file_number('weir_acceptable_delay', file)
  end function

  ! How many aggregators and stripes the coordinator has given to the file when it was created; false, and both 0, if none.
  logical function weir_allocation(file, aggregators, stripes)
    integer, intent(in) :: file
    integer, intent(out) :: aggregators, stripes
    procedure(allocation_function), pointer :: f
    type(c_funptr) :: address
    integer(c_int) :: given(2)
    weir_allocation = .false.
    given = 0
    address = found('weir_allocation')
    if (c_associated(address)) then
      call c_f_procpointer(address, f)
      weir_allocation = f(c_file(file), given(1), given(2)) == 0
    end if
    aggregators = int(given(1))
    stripes = int(given(2))
  end function

  ! Brings the record on disk up to date; true when there is one.
  logical function weir_flush()
    weir_flush = plain('weir_flush') == 0
  end function

  integer function plain(name)
    character(len=*), intent(in) :: name
    procedure(plain_function), pointer :: f
    type(c_funptr) :: address
    plain = -1
    address = found(name)
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    plain = f()
  end function

  integer function named(name, text)
    character(len=*), intent(in) :: name, text
    procedure(named_function), pointer :: f
    type(c_funptr) :: address
    named = -1
    address = found(name)
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    named = f(trim(text) // c_null_char)
  end function

  ! The file as C knows it; null if the MPI library cannot be asked.
  type(c_ptr) function c_file(file)
    integer, intent(in) :: file
    procedure(handle_function), pointer :: f
    type(c_funptr) :: address
    c_file = c_null_ptr
    address = found('MPI_File_f2c')
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    c_file = f(int(file, c_int))
  end function

  real(c_double) function file_number(name, file)
    character(len=*), intent(in) :: name
    integer, intent(in) :: file
    procedure(file_number_function), pointer :: f
    type(c_funptr) :: address
    file_number = -1
    address = found(name)
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    file_number = f(c_file(file))
  end function

  real(c_double) function number(name)
    character(len=*), intent(in) :: name
    procedure(number_function), pointer :: f
    type(c_funptr) :: address
    number = -1
    address = found(name)
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, f)
    number = f()
  end function

end module
