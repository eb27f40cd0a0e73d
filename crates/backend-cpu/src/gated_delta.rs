//! `gated_delta`: a matrix for each head that forgets, and is corrected under the key of each row.
//!
//! Columns of the matrix do not touch each other, so a chunk of work is [`COLUMNS`] columns of one head of one
//! sequence: small enough for the first cache, brought forward through all rows of the step.

use crate::{dispatch::by_isa, kernels::Isa, lanes::Lanes, parts::Parts};

/// Columns that a chunk takes.
pub const COLUMNS: usize = 32;

/// The rows of one sequence, for one head.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// From the head's first query on; rows are `key_stride` apart.
    pub q: &'a [f32],
    /// From the head's first key on; rows are `key_stride` apart.
    pub k: &'a [f32],
    /// From the head's first value on; rows are `value_stride` apart.
    pub v: &'a [f32],
    /// From the head's first logarithm of decay on; rows are `gate_stride` apart.
    pub decay: &'a [f32],
    /// From the head's first step size on; rows are `gate_stride` apart.
    pub beta: &'a [f32],
    /// Numbers between rows of `q` and `k`.
    pub key_stride: usize,
    /// Numbers between rows of `v`.
    pub value_stride: usize,
    /// Numbers between rows of `decay` and `beta`.
    pub gate_stride: usize,
    /// Multiplies the queries.
    pub scale: f32,
    /// Rows there are.
    pub rows: usize,
    /// Numbers in a key.
    pub key_dim: usize,
    /// Numbers in a value.
    pub value_dim: usize,
}

/// Brings columns `start..start + COLUMNS` (as far as there are) of the head's matrix forward.
///
/// `state` is the matrix `[key_dim, value_dim]`; `y` begins at the head's first result, rows `value_stride` apart;
/// `spare` has room for `key_dim * COLUMNS` numbers.
///
/// # Safety
/// Meanwhile nobody else may use these columns of `state` and `y`.
pub unsafe fn gated_delta(
    isa: Isa,
    head: &Head<'_>,
    start: usize,
    state: Parts<'_, f32>,
    y: Parts<'_, f32>,
    spare: &mut [f32],
) {
    let columns = COLUMNS.min(head.value_dim - start);
    let (block, _) = spare[..head.key_dim * COLUMNS].as_chunks_mut::<COLUMNS>();
    // SAFETY: the caller says that these columns are ours.
    let row =
        |i: usize| unsafe { state.part(i * head.value_dim + start..i * head.value_dim + start + columns) };
    for (i, block) in block.iter_mut().enumerate() {
        block[columns..].fill(0.0);
        block[..columns].copy_from_slice(row(i));
    }
    for t in 0..head.rows {
        let (keys, at) = (t * head.key_stride, t * head.value_stride + start);
        let q = &head.q[keys..keys + head.key_dim];
        let k = &head.k[keys..keys + head.key_dim];
        let keep = head.decay[t * head.gate_stride].exp();
        let beta = head.beta[t * head.gate_stride];
        let mut v = [0.0; COLUMNS];
        v[..columns].copy_from_slice(&head.v[at..at + columns]);
        let (gates, result) = ([keep, beta, head.scale], &mut v);
        by_isa!(isa, step(
            block: &mut [[f32; COLUMNS]],
            q: &[f32],
            k: &[f32],
            gates: [f32; 3],
            result: &mut [f32; COLUMNS],
        ));
        // SAFETY: the caller says that these columns are ours.
        unsafe { y.part(at..at + columns) }.copy_from_slice(&v[..columns]);
    }
    for (i, block) in block.iter().enumerate() {
        row(i).copy_from_slice(&block[..columns]);
    }
}

/// One row: the matrix forgets, is corrected, and is asked; `v` holds the value before and the result afterwards.
#[inline(always)]
unsafe fn step<L: Lanes>(
    block: &mut [[f32; COLUMNS]],
    q: &[f32],
    k: &[f32],
    [keep, beta, scale]: [f32; 3],
    v: &mut [f32; COLUMNS],
) {
    for column in (0..COLUMNS).step_by(L::LEN) {
        // SAFETY: `L` was detected; `column + LEN <= COLUMNS`.
        unsafe {
            let keep = L::splat(keep);
            let mut known = L::splat(0.0);
            for (row, k) in block.iter_mut().zip(k) {
                let at = row.as_mut_ptr().add(column);
                let s = L::load(at).mul(keep);
                s.store(at);
                known = L::splat(*k).mul_add(s, known);
            }
            let delta = L::load(v.as_ptr().add(column)).sub(known).mul(L::splat(beta));
            let mut result = L::splat(0.0);
            for ((row, k), q) in block.iter_mut().zip(k).zip(q) {
                let at = row.as_mut_ptr().add(column);
                let s = L::splat(*k).mul_add(delta, L::load(at));
                s.store(at);
                result = L::splat(*q).mul_add(s, result);
            }
            result.mul(L::splat(scale)).store(v.as_mut_ptr().add(column));
        }
    }
}
