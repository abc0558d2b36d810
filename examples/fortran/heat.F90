! Heat spreads over a square plate: the Fortran version of examples/c/heat.c, where it is explained.
!
!   mpifort heat.F90 -o heat                                        mpirun -n 4 ./heat -n 512 -s 200 -i 50
!   mpifort -DUSE_WEIR …/include/weir.f90 heat.F90 -o heat -lweir   the same, marking its phases
!
! Fortran's first index is the one that lies together in memory and in the file, so the field is
! field(x, y), and the file has the same bytes as that of the C program.
program heat
   use mpi
   use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
#ifdef USE_WEIR
   use weir
#endif
   implicit none

   integer(int64), parameter :: magic = int(z'54414548', int64) ! "HEAT"
   integer(MPI_OFFSET_KIND), parameter :: header_bytes = 4*8

   integer :: cells = 256, steps = 100, interval = 25
   character(len=256) :: file_name = 'heat.ckpt'
   logical :: restart = .false.

   ! This process's rectangle: the first cell (from 0) and how many, in x and y.
   integer :: comm, rank, first(2), extent(2)
   integer :: west, east, up, down ! neighbours
   integer :: row_type             ! a row along y, in memory
   integer :: interior             ! the rectangle without its halo, in memory
   integer :: place                ! the rectangle within the plate, in the file
   real(real64), allocatable :: field(:, :), next(:, :)
   integer(int64) :: done
   integer :: ierr

   call MPI_Init(ierr)
   call parse()
#ifdef USE_WEIR
   call weir_set_application('heat')
#endif
   call cut_plate()
   done = 0
   if (restart) then
      call read_checkpoint()
   else
      call heat_up()
   end if
   do while (done < steps)
      call step()
      done = done + 1
      if (mod(done, int(interval, int64)) == 0) call write_checkpoint()
   end do
   call print_hottest()
   call free_plate()
   call MPI_Finalize(ierr)

contains

   ! Where part `index` of `parts` begins.
   integer function part_begin(parts, index)
      integer, intent(in) :: parts, index
      part_begin = int(int(cells, int64)*index/parts)
   end function

   subroutine cut_plate()
      integer :: nprocs, dims(2), at(2), i
      call MPI_Comm_size(MPI_COMM_WORLD, nprocs, ierr)
      dims = 0
      call MPI_Dims_create(nprocs, 2, dims, ierr)
      call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .false., comm, ierr)
      call MPI_Comm_rank(comm, rank, ierr)
      call MPI_Cart_coords(comm, rank, 2, at, ierr)
      call MPI_Cart_shift(comm, 0, 1, west, east, ierr)
      call MPI_Cart_shift(comm, 1, 1, up, down, ierr)
      do i = 1, 2
         first(i) = part_begin(dims(i), at(i))
         extent(i) = part_begin(dims(i), at(i) + 1) - first(i)
      end do
      allocate (field(0:extent(1) + 1, 0:extent(2) + 1), next(0:extent(1) + 1, 0:extent(2) + 1))
      field = 0
      next = 0
      call MPI_Type_vector(extent(2), 1, extent(1) + 2, MPI_DOUBLE_PRECISION, row_type, ierr)
      call MPI_Type_commit(row_type, ierr)
      call MPI_Type_create_subarray(2, extent + 2, extent, [1, 1], MPI_ORDER_FORTRAN, &
                                    MPI_DOUBLE_PRECISION, interior, ierr)
      call MPI_Type_commit(interior, ierr)
      call MPI_Type_create_subarray(2, [cells, cells], extent, first, MPI_ORDER_FORTRAN, &
                                    MPI_DOUBLE_PRECISION, place, ierr)
      call MPI_Type_commit(place, ierr)
   end subroutine

   subroutine free_plate()
      call MPI_Type_free(row_type, ierr)
      call MPI_Type_free(interior, ierr)
      call MPI_Type_free(place, ierr)
      call MPI_Comm_free(comm, ierr)
   end subroutine

   ! A hot rectangle, off the middle.
   subroutine heat_up()
      integer :: x, y
      do y = first(2), first(2) + extent(2) - 1
         do x = first(1), first(1) + extent(1) - 1
            if (y >= cells/8 .and. y < cells/2 .and. x >= cells/4 .and. x < 5*cells/8) &
               field(x - first(1) + 1, y - first(2) + 1) = 100
         end do
      end do
   end subroutine

   subroutine exchange_halo()
      integer :: w, h
      w = extent(1)
      h = extent(2)
      call MPI_Sendrecv(field(1, 1), w, MPI_DOUBLE_PRECISION, up, 0, &
                        field(1, h + 1), w, MPI_DOUBLE_PRECISION, down, 0, comm, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(field(1, h), w, MPI_DOUBLE_PRECISION, down, 1, &
                        field(1, 0), w, MPI_DOUBLE_PRECISION, up, 1, comm, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(field(1, 1), 1, row_type, west, 2, &
                        field(w + 1, 1), 1, row_type, east, 2, comm, MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv(field(w, 1), 1, row_type, east, 3, &
                        field(0, 1), 1, row_type, west, 3, comm, MPI_STATUS_IGNORE, ierr)
   end subroutine

   subroutine step()
      real(real64), allocatable :: swap(:, :)
      real(real64) :: around
      integer :: x, y
      call exchange_halo()
      do y = 1, extent(2)
         do x = 1, extent(1)
            around = field(x - 1, y) + field(x + 1, y) + field(x, y - 1) + field(x, y + 1)
            next(x, y) = field(x, y) + 0.2_real64*(around - 4.0_real64*field(x, y))
         end do
      end do
      call move_alloc(field, swap)
      call move_alloc(next, field)
      call move_alloc(swap, next)
   end subroutine

   subroutine write_checkpoint()
      integer :: file
      integer(int64) :: header(4)
#ifdef USE_WEIR
      call weir_phase_begin('checkpoint')
#endif
      header = [magic, int(cells, int64), done, 0_int64]
      call MPI_File_open(comm, trim(file_name), MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file, ierr)
      call check()
      if (rank == 0) then
         call MPI_File_write_at(file, 0_MPI_OFFSET_KIND, header, 4, MPI_INTEGER8, MPI_STATUS_IGNORE, ierr)
         call check()
      end if
      call MPI_File_set_view(file, header_bytes, MPI_DOUBLE_PRECISION, place, 'native', MPI_INFO_NULL, ierr)
      call check()
      call MPI_File_write_all(file, field, 1, interior, MPI_STATUS_IGNORE, ierr)
      call check()
      call MPI_File_close(file, ierr)
#ifdef USE_WEIR
      call weir_phase_end()
#endif
   end subroutine

   subroutine read_checkpoint()
      integer :: file
      integer(int64) :: header(4)
#ifdef USE_WEIR
      call weir_phase_begin('restart')
#endif
      header = 0
      call MPI_File_open(comm, trim(file_name), MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
      call check()
      call MPI_File_read_at_all(file, 0_MPI_OFFSET_KIND, header, 4, MPI_INTEGER8, MPI_STATUS_IGNORE, ierr)
      call check()
      if (header(1) /= magic .or. header(2) /= cells) then
         write (error_unit, '(3a,i0,a)') 'heat: ', trim(file_name), ' is no checkpoint of a plate of ', cells, ' cells'
         call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      end if
      call MPI_File_set_view(file, header_bytes, MPI_DOUBLE_PRECISION, place, 'native', MPI_INFO_NULL, ierr)
      call check()
      call MPI_File_read_all(file, field, 1, interior, MPI_STATUS_IGNORE, ierr)
      call check()
      call MPI_File_close(file, ierr)
      done = header(3)
#ifdef USE_WEIR
      call weir_phase_end()
#endif
   end subroutine

   subroutine check()
      character(len=MPI_MAX_ERROR_STRING) :: text
      integer :: length, ignored
      if (ierr == MPI_SUCCESS) return
      call MPI_Error_string(ierr, text, length, ignored)
      write (error_unit, '(4a)') 'heat: ', trim(file_name), ': ', text(:length)
      call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
   end subroutine

   subroutine print_hottest()
      real(real64) :: mine, all
      mine = maxval(field(1:extent(1), 1:extent(2)))
      call MPI_Reduce(mine, all, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, comm, ierr)
      if (rank == 0) write (*, '(a,i0,a,i0,a,i0,a,f0.6)') 'heat: ', cells, ' x ', cells, ' cells, ', steps, ' steps, hottest ', all
   end subroutine

   subroutine parse()
      character(len=256) :: word
      integer :: i, status
      i = 1
      status = 0
      do while (i <= command_argument_count())
         call get_command_argument(i, word)
         if (word == '-r') then
            restart = .true.
            i = i + 1
            cycle
         end if
         select case (word)
         case ('-n')
            call number(i + 1, cells, status)
         case ('-s')
            call number(i + 1, steps, status)
         case ('-i')
            call number(i + 1, interval, status)
         case ('-o')
            call get_command_argument(i + 1, file_name, status=status)
         case default
            status = 1
         end select
         if (status /= 0) exit
         i = i + 2
      end do
      if (status == 0 .and. cells >= 1 .and. steps >= 0 .and. interval >= 1) return
      write (error_unit, '(a)') 'usage: heat [-n CELLS] [-s STEPS] [-i INTERVAL] [-o FILE] [-r]'
      call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
   end subroutine

   subroutine number(position, value, status)
      integer, intent(in) :: position
      integer, intent(inout) :: value
      integer, intent(out) :: status
      character(len=256) :: word
      call get_command_argument(position, word)
      read (word, *, iostat=status) value
   end subroutine

end program
