! says: the same as says.c does alone, in Fortran. Built with include/weir.f90, and with -DWITH_MPI_F08 for mpi_f08.
program says
#if defined WITH_MPI_F08
   use mpi_f08
#define FILE_TYPE type(MPI_File)
#define NUMBER(file) file%MPI_VAL
#else
   use mpi
#define FILE_TYPE integer
#define NUMBER(file) file
#endif
   use, intrinsic :: iso_c_binding
   use weir
   implicit none
   integer, parameter :: block = 65536
   integer(c_int64_t), parameter :: announced = 100000000, expected = 50000000
   integer :: rank, nprocs, ierr, aggregators, stripes
   logical :: with_weir
   character(len=block) :: data
   character(len=256) :: name
   FILE_TYPE :: file

   call MPI_Init(ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, nprocs, ierr)
   call get_command_argument(1, name)
   data = repeat(achar(97 + rank), block)
   call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file, ierr)
   call require(ierr == MPI_SUCCESS, 'open')
   with_weir = weir_active()
   call require((with_weir .or. weir_share() < 0) .and. weir_expected_wait() == 0, 'before the first I/O')
   call require(weir_shuffle_cost(NUMBER(file)) < 0 .and. weir_acceptable_delay(NUMBER(file)) < 0, 'before a call')

   call weir_expect(7.5_c_double, expected)
   call weir_phase_begin_sized('announced', announced)
   call write_calls(2)
   call say('ANNOUNCED')
   call write_calls(20)
   call weir_phase_end()
   call pause_s(0.2d0)
   call write_calls(2)
   call say('EXPECTED')
   call write_calls(50)

   if (with_weir) then
      call require(weir_share() == 1, 'share')
      call require(weir_shuffle_cost(NUMBER(file)) >= 0, 'shuffle cost')
      call require(weir_acceptable_delay(NUMBER(file)) >= 0, 'acceptable delay')
   end if
   call require(weir_expected_wait() == 0, 'expected wait')
   aggregators = 7
   stripes = 7
   if (.not. weir_allocation(NUMBER(file), aggregators, stripes)) then
      call require(aggregators == 0 .and. stripes == 0, 'no allocation')
   end if
   if (rank == 0 .and. with_weir) print '(a,i0,1x,i0)', 'GIVEN ', aggregators, stripes
   call MPI_File_close(file, ierr)
   call MPI_Finalize(ierr)

contains

   subroutine require(is_so, what)
      logical, intent(in) :: is_so
      character(len=*), intent(in) :: what
      integer :: ierror
      if (is_so) return
      write (0, *) 'says: not so: ', what
      call MPI_Abort(MPI_COMM_WORLD, 91, ierror)
   end subroutine

   subroutine say(word)
      character(len=*), intent(in) :: word
      if (rank == 0) then
         print '(a)', word
         flush (6)
      end if
   end subroutine

   subroutine pause_s(seconds)
      double precision, intent(in) :: seconds
      integer(8) :: began, now, rate
      call system_clock(began, rate)
      do
         call system_clock(now)
         if (dble(now - began) >= seconds*dble(rate)) exit
      end do
   end subroutine

   subroutine write_calls(calls)
      integer, intent(in) :: calls
      integer :: i
      integer(kind=MPI_OFFSET_KIND) :: at
      do i = 0, calls - 1
         at = (int(i, MPI_OFFSET_KIND)*nprocs + rank)*block
         call MPI_File_write_at_all(file, at, data, block, MPI_CHARACTER, MPI_STATUS_IGNORE, ierr)
         call require(ierr == MPI_SUCCESS, 'write_at_all')
         call pause_s(0.04d0)
      end do
   end subroutine
end program
