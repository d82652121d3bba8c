//! The buffers of segments, and the pool in which freed buffers are kept for new segments.
//!
//! New memory costs a page fault for each 4 KiB, which takes several times as long as filling the 4 KiB. The pool
//! therefore reuses retired buffers, the newest first.
//!
//! Limit: the pool keeps at most `idle_bytes_max` bytes. Memory above this limit is returned to the allocator.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::{MemoryBudget, MemoryBudgetError};

/// The size of the smallest buffer, bytes. The sizes of large buffers are multiples of it. In loom models, buffers are
/// smaller, because the model tracks each group of 8 bytes.
pub(crate) const BUFFER_BYTES_MIN: usize = if cfg!(loom) { 64 } else { 4 << 10 };
const CLASSES: usize = 9;
const LARGEST_POOLED: usize = BUFFER_BYTES_MIN << (CLASSES - 1);

/// A pool of freed buffers for new segments.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: [Mutex<Vec<Raw>>; CLASSES],
    idle_bytes_max: usize,
}

impl BufferPool {
    /// Creates a pool that keeps at most `idle_bytes_max` bytes. Each size of buffers may take an equal share of them.
    pub(crate) fn new(idle_bytes_max: usize) -> BufferPool {
        BufferPool { free: Default::default(), idle_bytes_max }
    }
}

/// The initialized memory of a segment. It is charged to a budget until it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    raw: Option<Raw>,
    budget: Arc<MemoryBudget>,
}

impl Buffer {
    /// Creates a buffer of at least `bytes` bytes, with memory from the pool or the allocator. A size up to 1 MiB is
    /// rounded up to a power of two, a larger size to a multiple of 4 KiB.
    pub(crate) fn new(budget: &Arc<MemoryBudget>, bytes: usize) -> Result<Buffer, MemoryBudgetError> {
        let bytes = rounded(bytes);
        budget.charge(bytes as u64)?;
        let pooled = class(bytes).and_then(|class| lock(&budget.pool().free[class]).pop());
        let raw = Some(pooled.unwrap_or_else(|| Raw::allocate(bytes)));
        Ok(Buffer { raw, budget: Arc::clone(budget) })
    }

    pub(crate) fn bytes_for(bytes: usize) -> usize {
        rounded(bytes)
    }

    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.as_ref().map_or(0, |raw| raw.bytes)
    }

    /// Pointer to the first byte. All bytes are initialized and belong to the buffer's owner.
    pub(crate) fn base(&self) -> *mut u8 {
        self.raw.as_ref().map_or(std::ptr::null_mut(), |raw| raw.base.as_ptr())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        self.budget.release(raw.bytes as u64);
        if let Some(class) = class(raw.bytes) {
            let mut free = lock(&self.budget.pool().free[class]);
            if (free.len() + 1) * raw.bytes * CLASSES <= self.budget.pool().idle_bytes_max {
                free.push(raw);
            }
        }
    }
}

fn rounded(bytes: usize) -> usize {
    if bytes <= LARGEST_POOLED {
        bytes.max(BUFFER_BYTES_MIN).next_power_of_two()
    } else {
        bytes.next_multiple_of(BUFFER_BYTES_MIN)
    }
}

fn class(bytes: usize) -> Option<usize> {
    (bytes <= LARGEST_POOLED).then(|| (bytes / BUFFER_BYTES_MIN).trailing_zeros() as usize)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory from the allocator, aligned to a cache line.
#[derive(Debug)]
struct Raw {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `Raw` owns its memory, which can be reached only through `&mut` or a `Buffer`.
unsafe impl Send for Raw {}

impl Raw {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 64).expect("buffer sizes are far below isize::MAX")
    }

    fn allocate(bytes: usize) -> Raw {
        let layout = Raw::layout(bytes);
        // SAFETY: the layout is not empty: `rounded` gives at least BUFFER_BYTES_MIN.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Raw { base, bytes }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: `allocate` allocated the memory with the same layout, and `Raw` owns it.
        unsafe { alloc::dealloc(self.base.as_ptr(), Raw::layout(self.bytes)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dropped_buffer_returns_to_its_pool_and_is_reused() {
        let node = MemoryBudget::node(1 << 20, 1 << 20);
        let first = Buffer::new(&node, 5_000).unwrap();
        let (base, len) = (first.base(), first.len());
        assert_eq!((len, node.used()), (8 << 10, 8 << 10));
        drop(first);
        assert_eq!(node.used(), 0);
        assert_eq!(Buffer::new(&node, 8 << 10).unwrap().base(), base);
    }

    #[test]
    fn buffer_is_freed_when_dropped_if_its_pool_has_no_room() {
        let node = MemoryBudget::node(1 << 20, 0);
        drop(Buffer::new(&node, 4_096).unwrap());
        assert!(lock(&node.pool().free[0]).is_empty());
    }
}
