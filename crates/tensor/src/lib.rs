//! Shapes and shared bytes: what a tensor is before anyone knows how its numbers are stored.
//!
//! No arithmetic on numbers and no files: a [`Bytes`] may be a map of a file or a buffer, and nobody above can tell.
#![forbid(unsafe_code)]

pub use bytes::Bytes;
use std::fmt;

/// The most dimensions a tensor may have.
pub const MAX_DIMS: usize = 4;

/// A row-major shape of at most [`MAX_DIMS`] dimensions: the last one is contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
    len: u8,
}

impl Shape {
    /// A shape, or `None` if there are more than [`MAX_DIMS`] dimensions or the number of elements overflows.
    pub fn new(dims: &[usize]) -> Option<Self> {
        let mut shape = Self { dims: [1; MAX_DIMS], len: u8::try_from(dims.len()).ok()? };
        shape.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        Some(shape)
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..usize::from(self.len)]
    }

    /// The number of elements; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// The length of one row: the last dimension, 1 for a scalar.
    pub fn row_len(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The number of rows: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        self.dims().split_last().map_or(1, |(_, outer)| outer.iter().product())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    /// For shapes written in code; use [`Shape::new`] for shapes that come from outside.
    fn from(dims: [usize; N]) -> Self {
        Self::new(&dims).expect("a shape written in code is small")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_counts_rows_and_elements() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!((shape.rows(), shape.row_len(), shape.elements()), (6, 4, 24));
        let scalar = Shape::from([]);
        assert_eq!((scalar.rows(), scalar.row_len(), scalar.elements()), (1, 1, 1));
    }

    #[test]
    fn shape_refuses_overflow_and_a_fifth_dimension() {
        assert!(Shape::new(&[4, 1 << 62]).is_none());
        assert!(Shape::new(&[1; 5]).is_none());
    }
}
