! A dozen MPI-IO calls in Fortran. Built three times: -DWITH_MPIF_H (include 'mpif.h'), -DWITH_MPI
! (use mpi) and -DWITH_MPI_F08 (use mpi_f08). Every rank does the same, so rank 0 knows the sums.
program fortran
#if defined WITH_MPI_F08
   use mpi_f08
#define HANDLE(kind) type(kind)
#define STATUS_TYPE type(MPI_Status)
#define SHAPE
#else
#if defined WITH_MPI
   use mpi
#endif
#define HANDLE(kind) integer
#define STATUS_TYPE integer
#define SHAPE (MPI_STATUS_SIZE)
#endif
   implicit none
#if defined WITH_MPIF_H
   include 'mpif.h'
#endif
   integer, parameter :: n = 250
   integer, parameter :: bytes = 4*n
   integer :: rank, nprocs, ierr, i, count, box
   integer :: numbers(n), back(n)
   integer(kind=MPI_OFFSET_KIND) :: mine, row
   HANDLE(MPI_File) :: file
   HANDLE(MPI_Info) :: info
   HANDLE(MPI_Datatype) :: part
   HANDLE(MPI_Request) :: request, both(2)
   STATUS_TYPE :: status SHAPE

   call MPI_Init(ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, nprocs, ierr)
   numbers = [(1000*rank + i, i=1, n)]
   mine = int(rank, MPI_OFFSET_KIND)*bytes
   row = int(nprocs, MPI_OFFSET_KIND)*bytes

   call MPI_Info_create(info, ierr)
   call MPI_Info_set(info, 'cb_nodes', '1', ierr)
   call MPI_File_open(MPI_COMM_WORLD, 'fortran.dat', MPI_MODE_CREATE + MPI_MODE_RDWR, info, file, ierr)
   call require(ierr == MPI_SUCCESS, 'open')
   call MPI_Info_free(info, ierr)

   call MPI_File_write_at_all(file, mine, numbers, n, MPI_INTEGER, status, ierr)
   call MPI_Get_count(status, MPI_INTEGER, count, ierr)
   call require(count == n, 'count of write_at_all')
   call MPI_File_write_at(file, row + mine, numbers, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
   call MPI_File_iwrite_at(file, 2*row + mine, numbers, n, MPI_INTEGER, request, ierr)
   call MPI_Wait(request, status, ierr)
   call MPI_File_write_at_all_begin(file, 3*row + mine, numbers, n, MPI_INTEGER, ierr)
   call MPI_File_write_at_all_end(file, numbers, MPI_STATUS_IGNORE, ierr)
   call MPI_File_sync(file, ierr)

   back = 0
   call MPI_File_read_at_all(file, mine, back, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
   call require(all(back == numbers), 'read_at_all')
   call MPI_File_read_at(file, row + mine, back, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
   back = 0
   call MPI_File_iread_at(file, 2*row + mine, back, n, MPI_INTEGER, both(1), ierr)
   call MPI_Irecv(box, 1, MPI_INTEGER, rank, 5, MPI_COMM_WORLD, both(2), ierr)
   call MPI_Send(rank, 1, MPI_INTEGER, rank, 5, MPI_COMM_WORLD, ierr)
   call MPI_Waitall(2, both, MPI_STATUSES_IGNORE, ierr)
   call require(all(back == numbers) .and. box == rank, 'iread_at')

   ! Each rank sees every nprocs-th number.
   call MPI_Type_vector(n, 1, nprocs, MPI_INTEGER, part, ierr)
   call MPI_Type_commit(part, ierr)
   mine = 4*row + 4*rank
   call MPI_File_set_view(file, mine, MPI_INTEGER, part, 'native', MPI_INFO_NULL, ierr)
   call MPI_File_write_all(file, numbers, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
   mine = 0
   call MPI_File_seek(file, mine, MPI_SEEK_SET, ierr)
   back = 0
   call MPI_File_read_all(file, back, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
   call require(all(back == numbers), 'read_all through a view')
   call MPI_File_close(file, ierr)
   call MPI_Type_free(part, ierr)

   ! Fortran's own I/O, beside MPI's.
   open (unit=10, file='list.'//achar(48 + rank)//'.txt', action='write')
   write (10, '(i0)') numbers(1:3)
   close (10)

   if (rank == 0) then
      write (*, '(a)', advance='no') 'TALLY {'
      call tally('MPIIO_COLL_OPENS', 1, ',')
      call tally('MPIIO_HINTS', 1, ',')
      call tally('MPIIO_COLL_WRITES', 2, ',')
      call tally('MPIIO_INDEP_WRITES', 1, ',')
      call tally('MPIIO_NB_WRITES', 1, ',')
      call tally('MPIIO_SPLIT_WRITES', 1, ',')
      call tally('MPIIO_COLL_READS', 2, ',')
      call tally('MPIIO_INDEP_READS', 1, ',')
      call tally('MPIIO_NB_READS', 1, ',')
      call tally('MPIIO_SPLIT_READS', 0, ',')
      call tally('MPIIO_SYNCS', 1, ',')
      call tally('MPIIO_VIEWS', 1, ',')
      call tally('MPIIO_BYTES_WRITTEN', 5*bytes, ',')
      call tally('MPIIO_BYTES_READ', 4*bytes, '}')
   end if
   call MPI_Finalize(ierr)

contains

   subroutine tally(name, each, after)
      character(len=*), intent(in) :: name, after
      integer, intent(in) :: each
      if (after == ',') then
         write (*, '(3a,i0,a)', advance='no') '"', name, '":', each*nprocs, after
      else
         write (*, '(3a,i0,a)') '"', name, '":', each*nprocs, after
      end if
   end subroutine

   subroutine require(ok, what)
      logical, intent(in) :: ok
      character(len=*), intent(in) :: what
      if (ok) return
      write (*, '(2a)') 'fortran: wrong: ', what
      call MPI_Abort(MPI_COMM_WORLD, 91, ierr)
   end subroutine

end program
