//! A heap of Weir's own.
//!
//! The program's stays as it would be without Weir: blocks of ours between its own would change the ways that its
//! `malloc` takes. Nor does Weir depend on it: it may be damaged, it may be another one than the C library's, and a
//! signal handler may open a file while `malloc` is under way.
//!
//! Small, for nothing on the path of a data call allocates. Blocks have sizes that are powers of two and lie close
//! together, for the first touch of a page costs more than all else here; those that are free are kept by size and
//! never joined, so that nothing is in a block but what it is used for, and one that comes back after a fork can be
//! taken in by whatever heap there is then.

use crate::shim::caller;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Mutex, TryLockError};

#[global_allocator]
static HEAP: Heap = Heap;

struct Heap;

const PAGE_BYTES: usize = 4096;
const SMALLEST_BYTES: usize = 16;
/// What is larger gets pages of its own, and gives them back. A rank's record is not: whoever merges them reads one after
/// the other into the same block.
const LARGEST_BYTES: usize = 128 << 10;
const SIZES: usize = (LARGEST_BYTES / SMALLEST_BYTES).ilog2() as usize + 1;
/// As much is asked for at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Blocks that are free, and memory that was never used.
struct Blocks {
    /// By size; the first word of each is the address of the next.
    free: [*mut u8; SIZES],
    unused: *mut u8,
    unused_bytes: usize,
}
// SAFETY: the memory that it points to is its own.
unsafe impl Send for Blocks {}

static FIRST: Mutex<Blocks> = Mutex::new(Blocks::NONE);
/// The one in use.
static BLOCKS: AtomicPtr<Mutex<Blocks>> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// For when the system has no more memory: enough to finish what is under way.
#[repr(C, align(4096))]
struct Reserve(UnsafeCell<[u8; CHUNK_BYTES]>);
// SAFETY: whoever sets `RESERVE_IS_USED` has it alone.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; CHUNK_BYTES]));
static RESERVE_IS_USED: AtomicBool = AtomicBool::new(false);
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Whether memory ran out since this was asked last.
pub(crate) fn ran_short() -> bool {
    IS_SHORT.load(Relaxed) && IS_SHORT.swap(false, Relaxed)
}

/// In a child of `fork`, whose only thread this is: another thread of the parent may have been at the blocks. They are
/// left as they are then, and the child begins anew.
pub(crate) fn after_fork() {
    if let Err(TryLockError::WouldBlock) = blocks().try_lock() {
        let fresh = map(size_of::<Mutex<Blocks>>()).cast::<Mutex<Blocks>>();
        if !fresh.is_null() {
            // SAFETY: fresh pages, with room for it.
            unsafe { fresh.write(Mutex::new(Blocks::NONE)) };
            BLOCKS.store(fresh, Release);
        }
    }
}

fn blocks() -> &'static Mutex<Blocks> {
    // SAFETY: a static, or what `after_fork` put there for good.
    unsafe { &*BLOCKS.load(Acquire) }
}

/// Works on the blocks. A signal handler that interrupts it finds that Weir is calling, and so does not come here.
fn with_blocks<R>(work: impl FnOnce(&mut Blocks) -> R) -> R {
    let _caller = caller::enter_weir();
    work(&mut blocks().lock().unwrap_or_else(|e| e.into_inner()))
}

/// Which size of block fits; `None` for what gets pages of its own.
fn size_index(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST_BYTES);
    let fits = bytes <= LARGEST_BYTES && layout.align() <= PAGE_BYTES;
    fits.then(|| (bytes.next_power_of_two() / SMALLEST_BYTES).ilog2() as usize)
}

impl Blocks {
    const NONE: Blocks = Blocks { free: [null_mut(); SIZES], unused: null_mut(), unused_bytes: 0 };

    fn take(&mut self, index: usize) -> *mut u8 {
        self.take_used(index).unwrap_or_else(|| self.make(index))
    }

    /// A block that came back.
    fn take_used(&mut self, index: usize) -> Option<*mut u8> {
        let block = self.free[index];
        if block.is_null() {
            return None;
        }
        // SAFETY: a free block holds the address of the next.
        self.free[index] = unsafe { block.cast::<*mut u8>().read() };
        Some(block)
    }

    fn give(&mut self, index: usize, block: *mut u8) {
        // SAFETY: nobody's any more, and large enough for an address.
        unsafe { block.cast::<*mut u8>().write(self.free[index]) };
        self.free[index] = block;
    }

    /// A block that was never used, at a multiple of its size or of a page; null if there is no memory. What lies before
    /// it becomes smaller blocks.
    fn make(&mut self, index: usize) -> *mut u8 {
        let bytes = SMALLEST_BYTES << index;
        let align = bytes.min(PAGE_BYTES);
        while !self.unused.addr().is_multiple_of(align) {
            let smaller = self.unused.addr().trailing_zeros() - SMALLEST_BYTES.trailing_zeros();
            let block = self.cut(SMALLEST_BYTES << smaller);
            self.give(smaller as usize, block);
        }
        if self.unused_bytes < bytes && !self.ask_for_more() {
            return null_mut();
        }
        self.cut(bytes)
    }

    /// The first bytes of what is unused.
    fn cut(&mut self, bytes: usize) -> *mut u8 {
        let block = self.unused;
        // SAFETY: there are as many bytes left.
        self.unused = unsafe { block.add(bytes) };
        self.unused_bytes -= bytes;
        block
    }

    /// What is left of the chunk before is smaller than the largest block, and is let go.
    fn ask_for_more(&mut self) -> bool {
        let mut chunk = map(CHUNK_BYTES);
        if chunk.is_null() {
            IS_SHORT.store(true, Relaxed);
            if !RESERVE_IS_USED.swap(true, Relaxed) {
                chunk = RESERVE.0.get().cast();
            }
        }
        if !chunk.is_null() {
            (self.unused, self.unused_bytes) = (chunk, CHUNK_BYTES);
        }
        !chunk.is_null()
    }
}

/// Whole pages of zeros, or null. By the system call itself: `mmap` may be somebody's who wants to know of the
/// program's memory.
fn map(bytes: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, of nobody's before.
    or_null(unsafe { libc::syscall(libc::SYS_mmap, 0usize, bytes, access, flags, -1, 0usize) })
}

/// What a system call that maps answered.
fn or_null(answer: libc::c_long) -> *mut u8 {
    if answer == -1 { null_mut() } else { std::ptr::with_exposed_provenance_mut(answer as usize) }
}

/// Pages for a layout; nothing of ours is aligned to more than one.
fn map_for(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE_BYTES { null_mut() } else { map(layout.size()) }
}

// SAFETY: blocks of the size and alignment asked for, each handed out once until it comes back; what says which kind of
// block it is, the layout, is the same then.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match size_index(layout) {
            Some(index) => with_blocks(|blocks| blocks.take(index)),
            None => map_for(layout),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(index) = size_index(layout) else { return map_for(layout) };
        match with_blocks(|blocks| blocks.take_used(index).ok_or_else(|| blocks.make(index))) {
            Ok(used) => {
                // SAFETY: a block of at least that size.
                unsafe { used.write_bytes(0, layout.size()) };
                used
            }
            // Zeros already: not to be touched before it is needed.
            Err(unused) => unused,
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match size_index(layout) {
            Some(index) => with_blocks(|blocks| blocks.give(index, block)),
            // SAFETY: pages of its own.
            None => _ = unsafe { libc::syscall(libc::SYS_munmap, block, layout.size()) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: the caller's word that this is a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_bytes, layout.align()) };
        match (size_index(layout), size_index(new_layout)) {
            (Some(old), Some(new)) if old == new => block,
            (None, None) => {
                // SAFETY: pages of its own, which may lie elsewhere from now on.
                let moved = unsafe {
                    let how = libc::MREMAP_MAYMOVE;
                    libc::syscall(libc::SYS_mremap, block, layout.size(), new_bytes, how)
                };
                or_null(moved)
            }
            _ => {
                // SAFETY: a layout, by the caller's word.
                let new = unsafe { self.alloc(new_layout) };
                if !new.is_null() {
                    // SAFETY: both are that large, and different blocks; the old one is done with.
                    unsafe {
                        new.copy_from_nonoverlapping(block, layout.size().min(new_bytes));
                        self.dealloc(block, layout);
                    }
                }
                new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: usize, align: usize) -> Layout {
        Layout::from_size_align(bytes, align).unwrap()
    }

    #[test]
    fn blocks_are_large_enough_aligned_and_used_again() {
        for bytes in [1, 15, 16, 17, 100, 4096, 4097, LARGEST_BYTES, LARGEST_BYTES + 1, 1 << 20] {
            for align in [1, 8, 64, PAGE_BYTES] {
                let layout = layout(bytes, align);
                // SAFETY: a layout of some size; each block comes back as it was given.
                unsafe {
                    let (one, two) = (HEAP.alloc(layout), HEAP.alloc_zeroed(layout));
                    assert!(one.addr() % align == 0 && two.addr() % align == 0);
                    assert!(one.addr().abs_diff(two.addr()) >= bytes);
                    assert!(std::slice::from_raw_parts(two, bytes).iter().all(|byte| *byte == 0));
                    one.write_bytes(0xa5, bytes);
                    two.write_bytes(0x5a, bytes);
                    assert!(std::slice::from_raw_parts(one, bytes).iter().all(|byte| *byte == 0xa5));
                    HEAP.dealloc(one, layout);
                    HEAP.dealloc(two, layout);
                }
            }
        }
    }

    #[test]
    fn what_grows_and_shrinks_keeps_its_bytes() {
        let mut bytes: Vec<u8> = Vec::new();
        let mut sizes: Vec<usize> = (0..18).map(|power| 3 << power).collect();
        sizes.extend(sizes.clone().into_iter().rev());
        for (before, size) in std::iter::once(0).chain(sizes.clone()).zip(sizes) {
            bytes.truncate(size);
            bytes.shrink_to_fit();
            bytes.extend((bytes.len()..size).map(|at| (at % 251) as u8));
            let kept = before.min(size);
            assert!(bytes[..kept].iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
        }
    }

    #[test]
    fn threads_share_it() {
        let threads = (0..4u8).map(|mark| {
            std::thread::spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for round in 0..5000usize {
                    kept.push(vec![mark; 1 + round * 7 % 3000]);
                    if kept.len() > 50 {
                        let gone = kept.swap_remove(round % 50);
                        assert!(gone.iter().all(|byte| *byte == mark));
                    }
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Runs `work` in a child, which does nothing else and ends with its answer; one that hangs is ended by the alarm.
    fn in_child(work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child's only thread comes back from neither branch.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(10);
                libc::_exit(work());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
        }
    }

    #[test]
    fn a_child_forked_in_the_middle_begins_anew() {
        let (held, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let before = Box::into_raw(Box::new(1));
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                with_blocks(|_| {
                    held.store(true, Release);
                    while !over.load(Acquire) {
                        std::hint::spin_loop();
                    }
                })
            });
            while !held.load(Acquire) {
                std::hint::spin_loop();
            }
            let answer = in_child(|| {
                after_fork();
                // SAFETY: made above; only the child gives it back.
                let before = unsafe { Box::from_raw(before) };
                let after = Box::new(*before + 1);
                drop(before);
                *after
            });
            over.store(true, Release);
            answer
        });
        assert_eq!(answer, 2);
    }

    #[test]
    fn when_memory_runs_out_there_is_a_reserve() {
        let answer = in_child(|| {
            after_fork();
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
            let mut blocks = 0;
            let layout = layout(1000, 8);
            // SAFETY: a layout of some size.
            while !ran_short() && !unsafe { HEAP.alloc(layout) }.is_null() {
                blocks += 1;
            }
            // SAFETY: as above.
            let after = (0..100).filter(|_| !unsafe { HEAP.alloc(layout) }.is_null()).count();
            i32::from(blocks > 0 && after == 100)
        });
        assert_eq!(answer, 1);
    }
}
