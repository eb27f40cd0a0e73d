//! Matrices that kernels do not read as the file has them, written anew when a plan is made.

use crate::{
    buffer::Buffer,
    kernels::{self, STRIP_ROWS},
    parts::Parts,
    pool::Pool,
    program::{Matrix, Program},
};
use nibble_backend::Error;

/// The matrices of a program that are kept by strips.
pub struct Strips {
    buffer: Buffer,
    /// Where those of each matrix of the program start.
    starts: Box<[usize]>,
}

impl Strips {
    /// Writes them, on all threads.
    ///
    /// # Errors
    /// [`Error::Memory`] if they do not fit into what the system has.
    pub fn new(program: &Program, pool: &Pool, huge: bool) -> Result<Self, Error> {
        let mut len = 0;
        let mut place = |matrix: &Matrix| {
            let start = len;
            len += strips_len(matrix).unwrap_or(0);
            start
        };
        let starts: Box<[usize]> = program.matrices.iter().map(&mut place).collect();
        let mut buffer = Buffer::new("matrices by strips", len, huge)?;
        let bytes = Parts::new(buffer.bytes_mut());
        for (matrix, &start) in program.matrices.iter().zip(&starts) {
            let Some(len) = strips_len(matrix) else { continue };
            let [stack, rows, row_len] = matrix.dims();
            let strips = rows.div_ceil(STRIP_ROWS);
            let strip = len / (stack * strips);
            pool.team(None).run(stack * strips, |i, _| {
                let file = kernels::Matrix { bytes: matrix.data.matrix(i / strips), rows, row_len };
                // SAFETY: strips lie apart, and each is written by one chunk.
                let to = unsafe { bytes.part(start + i * strip..start + (i + 1) * strip) };
                matrix.kernel.write_strip(file, i % strips, to);
            });
        }
        Ok(Self { buffer, starts })
    }

    /// Bytes that those of a program take.
    pub fn bytes(program: &Program) -> usize {
        program.matrices.iter().filter_map(strips_len).sum()
    }

    /// Matrix `index` of a program, number `which` of its stack, as its kernel reads it.
    pub fn matrix<'a>(&'a self, program: &'a Program, index: usize, which: usize) -> kernels::Matrix<'a> {
        let matrix = &program.matrices[index];
        let [_, rows, row_len] = matrix.dims();
        let bytes = match matrix.kernel.strips_len(rows, row_len) {
            Some(len) => &self.buffer.bytes()[self.starts[index] + which * len..][..len],
            None => matrix.data.matrix(which),
        };
        kernels::Matrix { bytes, rows, row_len }
    }
}

/// Bytes that all matrices of a stack take by strips, if they are kept so.
pub fn strips_len(matrix: &Matrix) -> Option<usize> {
    let [stack, rows, row_len] = matrix.dims();
    matrix.kernel.strips_len(rows, row_len).map(|len| stack * len)
}
