//! One value for each thread of a region.

use std::cell::UnsafeCell;

/// A value for each thread number.
pub struct PerThread<T>(Box<[UnsafeCell<T>]>);

// SAFETY: a value is used by one thread at a time, as `get` asks for, so it only moves between threads.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// One value each.
    pub fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| UnsafeCell::new(make())).collect())
    }

    /// The value of a thread.
    ///
    /// # Safety
    /// `thread` must be the number that the pool gave to the running chunk, and the chunk may ask once.
    #[allow(clippy::mut_from_ref, reason = "the pool gives a thread number to one running chunk at a time")]
    pub unsafe fn get(&self, thread: usize) -> &mut T {
        // SAFETY: one running chunk has this number, and holds one reference.
        unsafe { &mut *self.0[thread].get() }
    }
}
