! Weir for Fortran: compile this file with your program.
!
! The functions are looked up when they are called and do nothing when the program runs without Weir, so
! a program that uses this module builds and runs everywhere. Works with LD_PRELOAD=libweir.so and with
! -lweir. (With a C library older than glibc 2.34 link with -ldl.)
module weir
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: weir_version, weir_active, weir_phase_begin, weir_phase_end, weir_set_application
  public :: weir_characteristic_time, weir_io_ratio, weir_flush

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
    function number_function() bind(c)
      import :: c_double
      real(c_double) :: number_function
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
