//! The inner loops of attention: some queries against one page of one head.
//!
//! Whatever the step looks like, a query meets the same numbers in the same order: dot products run along the key's
//! dimensions in one chain, the maximum and the sum of a page are taken over its 64 places (unseen ones hold nothing),
//! values are added position by position. So a row's result depends on nothing but its sequence.

use crate::{kv, lanes::Lanes};
use nibble_backend::{KvType, PAGE_LEN};

/// Working memory of one thread.
pub struct Scratch<'a> {
    /// `[queries, key_dim]`
    pub q: &'a mut [f32],
    /// Keys of a page: `[key_dim, 64]`
    pub keys: &'a mut [f32],
    /// Values of a page: `[64, padded value_dim]`; before that, rows of block types.
    pub values: &'a mut [f32],
    /// Scores, then weights: `[queries, 64]`
    pub scores: &'a mut [f32],
    /// Running maximum, sum and rescaling of each query: `[3, queries]`
    pub running: &'a mut [f32],
    /// Weighted sums of the part of the context in hand: `[queries, padded value_dim]`
    pub sums: &'a mut [f32],
    /// The same for all parts before it.
    pub total: &'a mut [f32],
    /// Maximum and sum of all parts before it: `[2, queries]`
    pub total_running: &'a mut [f32],
}

/// Sums are kept in rows of whole vectors of every instruction set.
pub fn padded(value_dim: usize) -> usize {
    value_dim.next_multiple_of(16)
}

impl<'a> Scratch<'a> {
    /// Numbers needed for `queries` at a time.
    pub fn len(queries: usize, key_dim: usize, value_dim: usize) -> usize {
        let values = value_dim.max(key_dim).next_multiple_of(32);
        queries * (key_dim + PAGE_LEN + 5 + 2 * padded(value_dim)) + PAGE_LEN * (key_dim + values)
    }

    /// Cuts `memory` up.
    pub fn new(memory: &'a mut [f32], queries: usize, key_dim: usize, value_dim: usize) -> Self {
        let sums = queries * padded(value_dim);
        let (keys, memory) = memory.split_at_mut(PAGE_LEN * key_dim);
        let rows = value_dim.max(key_dim).next_multiple_of(32);
        let (values, memory) = memory.split_at_mut(PAGE_LEN * rows);
        let (scores, memory) = memory.split_at_mut(queries * PAGE_LEN);
        let (sums_part, memory) = memory.split_at_mut(sums);
        let (total, memory) = memory.split_at_mut(sums);
        let (q, memory) = memory.split_at_mut(queries * key_dim);
        let (running, memory) = memory.split_at_mut(3 * queries);
        let total_running = &mut memory[..2 * queries];
        Self { q, keys, values, scores, running, sums: sums_part, total, total_running }
    }
}

/// Where the values of a page are read from.
#[derive(Clone, Copy)]
pub enum Values {
    /// Half-precision rows of whole vectors in the bank itself.
    Half(Rows<u16>),
    /// 32-bit rows.
    Full(Rows<f32>),
}

/// Rows of `stride` numbers.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    start: *const T,
    stride: usize,
}

/// A vector of numbers of a row. A trait and no closure: the compiler does not inline a closure's instructions.
trait Load: Copy {
    /// # Safety
    /// The instruction set of `L` was detected, and the row reaches past the vector.
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L;
}

impl Load for Rows<f32> {
    #[inline(always)]
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L {
        // SAFETY: passed on.
        unsafe { L::load(self.start.add(row * self.stride + column)) }
    }
}

impl Load for Rows<u16> {
    #[inline(always)]
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L {
        // SAFETY: passed on.
        unsafe { L::load_f16(self.start.add(row * self.stride + column)) }
    }
}

/// Keys `0..n` of a page as 32-bit numbers, dimension by dimension: `keys[d * 64 + position]`.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn load_keys<L: Lanes>(kv: KvType, bytes: &[u8], dim: usize, n: usize, s: &mut Scratch<'_>) {
    let row = kv.row_bytes(dim);
    let stride = dim.next_multiple_of(32);
    for (position, bytes) in bytes.chunks_exact(row).take(n).enumerate() {
        let wide = &mut s.values[position * stride..(position + 1) * stride];
        // SAFETY: passed on; `bytes` holds `dim` numbers and `wide` at least as many.
        unsafe { widen::<L>(kv, bytes, dim, wide) };
    }
    // SAFETY: passed on; both hold 64 rows (columns) of `dim` numbers.
    unsafe { L::transpose(&s.values[..PAGE_LEN * stride], stride, n, dim, s.keys) };
}

/// Values `0..n` of a page, as they are where the bank holds whole vectors, else widened.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn load_values<L: Lanes>(
    kv: KvType,
    bytes: &[u8],
    dim: usize,
    n: usize,
    passes: usize,
    s: &mut Scratch<'_>,
) -> Values {
    let whole = dim == padded(dim);
    match kv {
        KvType::F32 if whole => return Values::Full(Rows { start: bytes.as_ptr().cast(), stride: dim }),
        KvType::F16 if whole && passes <= 2 => {
            return Values::Half(Rows { start: bytes.as_ptr().cast(), stride: dim });
        }
        _ => {}
    }
    let stride = if matches!(kv, KvType::F16 | KvType::F32) { padded(dim) } else { dim.next_multiple_of(32) };
    for (position, bytes) in bytes.chunks_exact(kv.row_bytes(dim)).take(n).enumerate() {
        let wide = &mut s.values[position * stride..(position + 1) * stride];
        // SAFETY: passed on.
        unsafe { widen::<L>(kv, bytes, dim, wide) };
    }
    Values::Full(Rows { start: s.values.as_ptr(), stride })
}

/// One row as 32-bit numbers.
#[inline(always)]
unsafe fn widen<L: Lanes>(kv: KvType, bytes: &[u8], dim: usize, out: &mut [f32]) {
    match kv {
        KvType::F32 => {
            for (out, x) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = f32::from_ne_bytes([x[0], x[1], x[2], x[3]]);
            }
        }
        KvType::F16 => {
            assert!(bytes.len() >= 2 * dim && out.len() >= dim);
            let whole = dim / L::LEN * L::LEN;
            for i in (0..whole).step_by(L::LEN) {
                // SAFETY: `i + LEN <= dim`, and both slices hold `dim` numbers.
                unsafe { L::load_f16(bytes.as_ptr().cast::<u16>().add(i)).store(out.as_mut_ptr().add(i)) };
            }
            for i in whole..dim {
                out[i] = half::f16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
            }
        }
        KvType::Q8_0 | KvType::Q4_0 => kv::decode_blocks(kv, bytes, out),
    }
}

/// Scores of queries `from..to` against all 64 places of a page.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn scores<L: Lanes>(s: &mut Scratch<'_>, dim: usize, from: usize, to: usize) {
    assert!(s.q.len() >= to * dim && s.keys.len() >= dim * PAGE_LEN && s.scores.len() >= to * PAGE_LEN);
    let mut query = from;
    while query < to {
        // SAFETY: queries below `to` and all places of a page are inside the slices, as asserted.
        unsafe {
            let q = s.q.as_ptr().add(query * dim);
            let out = s.scores.as_mut_ptr().add(query * PAGE_LEN);
            if to - query >= L::QUERIES && L::QUERIES == 4 {
                scores_of::<L, 4>(q, s.keys.as_ptr(), dim, out);
                query += 4;
            } else if to - query >= 2 {
                scores_of::<L, 2>(q, s.keys.as_ptr(), dim, out);
                query += 2;
            } else {
                scores_of::<L, 1>(q, s.keys.as_ptr(), dim, out);
                query += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn scores_of<L: Lanes, const M: usize>(q: *const f32, keys: *const f32, dim: usize, out: *mut f32) {
    const W: usize = 4;
    for column in (0..PAGE_LEN).step_by(W * L::LEN) {
        // SAFETY: see `scores`.
        unsafe {
            let mut acc = [[L::splat(0.0); W]; M];
            for d in 0..dim {
                let row = keys.add(d * PAGE_LEN + column);
                let k: [L; W] = [
                    L::load(row),
                    L::load(row.add(L::LEN)),
                    L::load(row.add(2 * L::LEN)),
                    L::load(row.add(3 * L::LEN)),
                ];
                for m in 0..M {
                    let q = L::splat(*q.add(m * dim + d));
                    for w in 0..W {
                        acc[m][w] = q.mul_add(k[w], acc[m][w]);
                    }
                }
            }
            for m in 0..M {
                for w in 0..W {
                    acc[m][w].store(out.add(m * PAGE_LEN + column + w * L::LEN));
                }
            }
        }
    }
}

/// Turns the scores of one query into weights relative to the new running maximum. Places outside `lo..hi` are unseen.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn soften<L: Lanes>(
    s: &mut Scratch<'_>,
    query: usize,
    lo: usize,
    hi: usize,
    scale: f32,
    cap: Option<f32>,
) {
    let queries = s.running.len() / 3;
    let scores = &mut s.scores[query * PAGE_LEN..(query + 1) * PAGE_LEN];
    let at = scores.as_mut_ptr();
    // SAFETY: 64 is a multiple of every vector length, and `scores` has 64 places.
    unsafe {
        for i in (0..PAGE_LEN).step_by(L::LEN) {
            let mut x = L::load(at.add(i)).mul(L::splat(scale));
            if let Some(cap) = cap {
                x = tanh::<L>(x.div(L::splat(cap))).mul(L::splat(cap));
            }
            x.store(at.add(i));
        }
        scores[..lo].fill(f32::NEG_INFINITY);
        scores[hi..].fill(f32::NEG_INFINITY);
        let mut top = L::splat(f32::NEG_INFINITY);
        for i in (0..PAGE_LEN).step_by(L::LEN) {
            top = top.max(L::load(at.add(i)));
        }
        let before = s.running[query];
        let top = lanes_of(top).fold(before, f32::max);
        let mut sums = [0.0f32; 16];
        for i in (0..PAGE_LEN).step_by(L::LEN) {
            let p = L::load(at.add(i)).sub(L::splat(top)).exp_negative();
            p.store(at.add(i));
        }
        // 16 lanes, then a fixed tree, whatever the vector length is.
        for i in (0..PAGE_LEN).step_by(L::LEN) {
            let lane = sums.as_mut_ptr().add(i % 16);
            L::load(lane).add(L::load(at.add(i))).store(lane);
        }
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                sums[i] += sums[i + width];
            }
            width /= 2;
        }
        let rescale = if before == top { 1.0 } else { (before - top).exp() };
        s.running[query] = top;
        s.running[queries + query] = s.running[queries + query] * rescale + sums[0];
        s.running[2 * queries + query] = rescale;
    }
}

/// The lanes of a vector.
#[inline(always)]
unsafe fn lanes_of<L: Lanes>(x: L) -> impl Iterator<Item = f32> {
    let mut out = [f32::NEG_INFINITY; 16];
    // SAFETY: no vector is longer than 16.
    unsafe { x.store(out.as_mut_ptr()) };
    out.into_iter().take(L::LEN)
}

/// `tanh(x) = sign(x) (1 - e) / (1 + e)` with `e = exp(-2 |x|)`.
#[inline(always)]
pub unsafe fn tanh<L: Lanes>(x: L) -> L {
    // SAFETY: passed on.
    unsafe {
        let minus = L::splat(0.0).sub(x);
        let e = x.max(minus).mul(L::splat(-2.0)).exp_negative();
        let t = L::splat(1.0).sub(e).div(L::splat(1.0).add(e));
        // 0 for negative x, t for the others; and the other way round.
        t.zero_where(x, 0.0).sub(t.zero_where(minus, 0.0))
    }
}

/// Adds values `lo..hi`, weighted, to the rescaled sums of queries `from..to`.
///
/// # Safety
/// The instruction set of `L` was detected, and `values` holds 64 rows of at least `padded(dim)` numbers.
#[inline(always)]
pub unsafe fn accumulate<L: Lanes>(
    s: &mut Scratch<'_>,
    values: Values,
    dim: usize,
    (lo, hi): (usize, usize),
    from: usize,
    to: usize,
) {
    let (queries, width) = (s.running.len() / 3, padded(dim));
    assert!(to <= queries && s.sums.len() >= to * width && s.scores.len() >= to * PAGE_LEN && hi <= PAGE_LEN);
    let mut query = from;
    while query < to {
        // SAFETY: queries below `to` are inside the slices, as asserted; the caller vouches for the values.
        unsafe {
            let weights = s.scores.as_ptr().add(query * PAGE_LEN);
            let rescale = s.running.as_ptr().add(2 * queries + query);
            let sums = s.sums.as_mut_ptr().add(query * width);
            let step = if to - query >= L::QUERIES && L::QUERIES == 4 {
                accumulate_for::<L, 4>(weights, rescale, values, (lo, hi), sums, width)
            } else if to - query >= 2 {
                accumulate_for::<L, 2>(weights, rescale, values, (lo, hi), sums, width)
            } else {
                accumulate_for::<L, 1>(weights, rescale, values, (lo, hi), sums, width)
            };
            query += step;
        }
    }
}

#[inline(always)]
unsafe fn accumulate_for<L: Lanes, const M: usize>(
    weights: *const f32,
    rescale: *const f32,
    values: Values,
    range: (usize, usize),
    sums: *mut f32,
    width: usize,
) -> usize {
    // SAFETY: see `accumulate`.
    unsafe {
        match values {
            Values::Full(rows) => all_columns::<L, _, M>(weights, rescale, rows, range, sums, width),
            Values::Half(rows) => all_columns::<L, _, M>(weights, rescale, rows, range, sums, width),
        }
    }
    M
}

#[inline(always)]
unsafe fn all_columns<L: Lanes, R: Load, const M: usize>(
    weights: *const f32,
    rescale: *const f32,
    values: R,
    range: (usize, usize),
    sums: *mut f32,
    width: usize,
) {
    let wide = width / (4 * L::LEN) * (4 * L::LEN);
    // SAFETY: see `accumulate`; columns stay below `width`, which is a multiple of the vector length.
    unsafe {
        for column in (0..wide).step_by(4 * L::LEN) {
            columns::<L, R, M, 4>(weights, rescale, values, range, sums, width, column);
        }
        for column in (wide..width).step_by(L::LEN) {
            columns::<L, R, M, 1>(weights, rescale, values, range, sums, width, column);
        }
    }
}

#[inline(always)]
unsafe fn columns<L: Lanes, R: Load, const M: usize, const W: usize>(
    weights: *const f32,
    rescale: *const f32,
    values: R,
    (lo, hi): (usize, usize),
    sums: *mut f32,
    width: usize,
    column: usize,
) {
    // SAFETY: see `accumulate`.
    unsafe {
        let mut acc = [[L::splat(0.0); W]; M];
        for m in 0..M {
            let by = L::splat(*rescale.add(m));
            for w in 0..W {
                acc[m][w] = L::load(sums.add(m * width + column + w * L::LEN)).mul(by);
            }
        }
        for position in lo..hi {
            let mut v = [L::splat(0.0); W];
            for w in 0..W {
                v[w] = values.load(position, column + w * L::LEN);
            }
            for m in 0..M {
                let p = L::splat(*weights.add(m * PAGE_LEN + position));
                for w in 0..W {
                    acc[m][w] = p.mul_add(v[w], acc[m][w]);
                }
            }
        }
        for m in 0..M {
            for w in 0..W {
                acc[m][w].store(sums.add(m * width + column + w * L::LEN));
            }
        }
    }
}
