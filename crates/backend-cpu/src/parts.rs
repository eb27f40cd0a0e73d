//! A slice that several threads write in parts that do not overlap.

use std::{marker::PhantomData, ops::Range};

/// A shared view of an exclusively borrowed slice.
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Parts<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parts<'_, T> {}

// SAFETY: it gives out parts of a `&mut [T]`, which may be sent if `T` may; `part` leaves the rest to its caller.
unsafe impl<T: Send> Send for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// All of `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// Elements in the slice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first element.
    pub fn start(&self) -> *mut T {
        self.start
    }

    /// One part, to write.
    ///
    /// # Safety
    /// While the result lives, nobody else may hold a part that overlaps `range`.
    ///
    /// # Panics
    /// If `range` is not inside the slice.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that no other part overlaps")]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies inside the borrowed slice; the caller promises that no other part overlaps.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
