//! The inner loops of attention: some queries against one page of one head.
//!
//! Whatever the step looks like, a query meets the same numbers in the same order: dot products run along the key's
//! dimensions in one chain, or in one for each block of 32 whose results are scaled and added in order; the maximum and
//! the sum of a page are taken over its 64 places (unseen ones hold nothing); values are added position by position,
//! weights having been multiplied with the scales of blocks. So a row's result depends on nothing but its sequence.

use crate::{
    kv::{BLOCK, Units},
    lanes::Lanes,
};
use nibble_backend::{KvType, PAGE_LEN};

/// Working memory of one thread.
pub struct Scratch<'a> {
    /// `[queries, key_dim]`
    pub q: &'a mut [f32],
    /// Keys of a page, or their codes: `[key_dim, 64]`
    pub keys: &'a mut [f32],
    /// Values of a page, or their codes: `[64, padded value_dim]`
    pub values: &'a mut [f32],
    /// Scales of the blocks of a page: `[blocks, 64]`
    pub scales: &'a mut [f32],
    /// Scores, then weights: `[queries, 64]`
    pub scores: &'a mut [f32],
    /// Weights times the scales of blocks of values: `[queries, blocks, 64]`
    pub scaled: &'a mut [f32],
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
        let (keys, values) = (key_dim.next_multiple_of(BLOCK), value_dim.next_multiple_of(BLOCK));
        let blocks = keys.max(values) / BLOCK;
        let each = key_dim + PAGE_LEN + values / BLOCK * PAGE_LEN + 5 + 2 * padded(value_dim);
        queries * each + PAGE_LEN * (keys + values + blocks)
    }

    /// Cuts `memory` up.
    pub fn new(memory: &'a mut [f32], queries: usize, key_dim: usize, value_dim: usize) -> Self {
        let mut rest = memory;
        let mut take = |len: usize| {
            let (taken, left) = std::mem::take(&mut rest).split_at_mut(len);
            rest = left;
            taken
        };
        let (key_rows, value_rows) = (key_dim.next_multiple_of(BLOCK), value_dim.next_multiple_of(BLOCK));
        Self {
            keys: take(PAGE_LEN * key_rows),
            values: take(PAGE_LEN * value_rows),
            scales: take(PAGE_LEN * key_rows.max(value_rows) / BLOCK),
            scores: take(queries * PAGE_LEN),
            scaled: take(queries * value_rows / BLOCK * PAGE_LEN),
            sums: take(queries * padded(value_dim)),
            total: take(queries * padded(value_dim)),
            q: take(queries * key_dim),
            running: take(3 * queries),
            total_running: take(2 * queries),
        }
    }
}

/// Numbers of a page, by row and column: keys by dimension and position, values by position and dimension. A trait and
/// no closure: the compiler does not inline a closure's instructions.
trait Numbers: Copy {
    /// A vector of a row.
    ///
    /// # Safety
    /// The instruction set of `L` was detected, and the row reaches past the vector.
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L;
}

/// Rows of `stride` numbers.
#[derive(Clone, Copy)]
struct Rows<T> {
    start: *const T,
    stride: usize,
}

impl<T> Rows<T> {
    fn new(bytes: *const u8, stride: usize) -> Self {
        Self { start: bytes.cast(), stride }
    }
}

macro_rules! rows_of {
    ($type:ty, $load:ident) => {
        impl Numbers for Rows<$type> {
            #[inline(always)]
            unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L {
                // SAFETY: passed on.
                unsafe { L::$load(self.start.add(row * self.stride + column)) }
            }
        }
    };
}
rows_of!(f32, load);
rows_of!(u16, load_f16);
rows_of!(i8, load_i8);

/// Keys in nibbles: dimensions `d` and `d + 16` of a block share a row of bytes.
#[derive(Clone, Copy)]
struct KeyNibbles(*const u8);

impl Numbers for KeyNibbles {
    #[inline(always)]
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L {
        let bytes = row / BLOCK * (BLOCK / 2) + row % (BLOCK / 2);
        // SAFETY: passed on.
        unsafe { L::load_nibbles(self.0.add(bytes * PAGE_LEN + column), row % BLOCK >= BLOCK / 2) }
    }
}

/// Values in nibbles: rows of `stride` bytes.
#[derive(Clone, Copy)]
struct ValueNibbles {
    start: *const u8,
    stride: usize,
}

impl Numbers for ValueNibbles {
    #[inline(always)]
    unsafe fn load<L: Lanes>(self, row: usize, column: usize) -> L {
        let byte = row * self.stride + column / BLOCK * (BLOCK / 2) + column % (BLOCK / 2);
        // SAFETY: passed on.
        unsafe { L::load_nibbles(self.start.add(byte), column % BLOCK >= BLOCK / 2) }
    }
}

/// What some queries do with the keys, or the values, of one head of one page.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    /// How numbers are kept.
    pub kv: KvType,
    /// All bytes of the keys or of the values.
    pub bytes: &'a [u8],
    /// Numbers in a key or value.
    pub dim: usize,
    /// The queries.
    pub from: usize,
    /// Their end.
    pub to: usize,
    /// The bytes that will be read next, or null.
    pub next: *const u8,
}

impl Page<'_> {
    /// Whether numbers that are read so often are better widened once.
    fn widens<L: Lanes>(&self) -> bool {
        (self.to - self.from).div_ceil(L::QUERIES) > 2
    }

    /// Bytes of the next page to ask for with each of `rows` rows of this one.
    fn ahead(&self, rows: usize) -> Ahead {
        Ahead {
            start: self.next,
            bytes: if self.next.is_null() { 0 } else { self.bytes.len().div_ceil(rows) },
        }
    }
}

/// Memory to be asked for while something else is worked on.
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    bytes: usize,
}

impl Ahead {
    const NOTHING: Self = Self { start: std::ptr::null(), bytes: 0 };

    #[inline(always)]
    unsafe fn ask<L: Lanes>(self, row: usize) {
        for at in (0..self.bytes).step_by(64) {
            // SAFETY: passed on.
            unsafe { L::prefetch(self.start.wrapping_add(row * self.bytes + at)) };
        }
    }
}

/// Scores of queries against all 64 places of a page of keys.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn scores<L: Lanes>(page: Page<'_>, s: &mut Scratch<'_>) {
    let (dim, units) = (page.dim, Units::new(page.kv, page.dim));
    assert!(s.q.len() >= page.to * dim && s.scores.len() >= page.to * PAGE_LEN);
    assert!(page.bytes.len() >= page.kv.row_bytes(dim) * PAGE_LEN && s.keys.len() >= dim * PAGE_LEN);
    let start = page.bytes.as_ptr();
    // SAFETY: passed on; the bytes hold all rows of the page, as asserted.
    unsafe {
        load_scales::<L>(page, units, s);
        match page.kv {
            KvType::F32 => scores_from::<L, _>(page, Rows::<f32>::new(start, PAGE_LEN), s),
            KvType::F16 => scores_from::<L, _>(page, Rows::<u16>::new(start, PAGE_LEN), s),
            KvType::Q8_0 => scores_from::<L, _>(page, Rows::<i8>::new(start, PAGE_LEN), s),
            KvType::Q4_0 => scores_from::<L, _>(page, KeyNibbles(start), s),
        }
    }
}

/// The scales of all blocks as 32-bit numbers.
#[inline(always)]
unsafe fn load_scales<L: Lanes>(page: Page<'_>, units: Units, s: &mut Scratch<'_>) {
    let len = units.blocks * PAGE_LEN;
    let from = &page.bytes[units.scales()..units.scales() + 2 * len];
    assert!(s.scales.len() >= len);
    for i in (0..len).step_by(L::LEN) {
        // SAFETY: passed on; both hold `len` numbers, a multiple of every vector's length.
        unsafe { L::load_f16(from.as_ptr().cast::<u16>().add(i)).store(s.scales.as_mut_ptr().add(i)) };
    }
}

#[inline(always)]
unsafe fn scores_from<L: Lanes, N: Numbers>(page: Page<'_>, keys: N, s: &mut Scratch<'_>) {
    // SAFETY: passed on.
    unsafe {
        if page.widens::<L>() {
            for d in 0..page.dim {
                for column in (0..PAGE_LEN).step_by(L::LEN) {
                    keys.load::<L>(d, column).store(s.keys.as_mut_ptr().add(d * PAGE_LEN + column));
                }
            }
            let keys = Rows::<f32> { start: s.keys.as_ptr(), stride: PAGE_LEN };
            all_scores::<L, _>(page, keys, s);
        } else {
            all_scores::<L, _>(page, keys, s);
        }
    }
}

#[inline(always)]
unsafe fn all_scores<L: Lanes, N: Numbers>(page: Page<'_>, keys: N, s: &mut Scratch<'_>) {
    let mut query = page.from;
    let mut ahead = page.ahead(page.dim);
    while query < page.to {
        // SAFETY: queries below `to` and all places of a page are inside the slices, as `scores` asserts.
        unsafe {
            let q = s.q.as_ptr().add(query * page.dim);
            let out = s.scores.as_mut_ptr().add(query * PAGE_LEN);
            let scales = s.scales.as_ptr();
            query += if page.to - query >= L::QUERIES && L::QUERIES == 4 {
                scores_of::<L, N, 4>(q, keys, page, scales, ahead, out)
            } else if page.to - query >= 2 {
                scores_of::<L, N, 2>(q, keys, page, scales, ahead, out)
            } else {
                scores_of::<L, N, 1>(q, keys, page, scales, ahead, out)
            };
        }
        ahead = Ahead::NOTHING;
    }
}

/// Vectors of scores of a query that are summed together.
const WIDE: usize = 4;

#[inline(always)]
unsafe fn scores_of<L: Lanes, N: Numbers, const M: usize>(
    q: *const f32,
    keys: N,
    page: Page<'_>,
    scales: *const f32,
    mut ahead: Ahead,
    out: *mut f32,
) -> usize {
    let dim = page.dim;
    let has_blocks = matches!(page.kv, KvType::Q8_0 | KvType::Q4_0);
    for column in (0..PAGE_LEN).step_by(WIDE * L::LEN) {
        // SAFETY: see `all_scores`.
        unsafe {
            let mut total = [[L::splat(0.0); WIDE]; M];
            if has_blocks {
                for block in 0..dim.div_ceil(BLOCK) {
                    let dims = (block * BLOCK, dim.min((block + 1) * BLOCK));
                    let sums = chain::<L, N, M>(q, keys, dim, dims, column, ahead);
                    for w in 0..WIDE {
                        let scale = L::load(scales.add(block * PAGE_LEN + column + w * L::LEN));
                        for m in 0..M {
                            total[m][w] = sums[m][w].mul_add(scale, total[m][w]);
                        }
                    }
                }
            } else {
                total = chain::<L, N, M>(q, keys, dim, (0, dim), column, ahead);
            }
            for m in 0..M {
                for w in 0..WIDE {
                    total[m][w].store(out.add(m * PAGE_LEN + column + w * L::LEN));
                }
            }
        }
        ahead = Ahead::NOTHING;
    }
    M
}

/// Sums of products over some dimensions.
#[inline(always)]
unsafe fn chain<L: Lanes, N: Numbers, const M: usize>(
    q: *const f32,
    keys: N,
    dim: usize,
    (first, end): (usize, usize),
    column: usize,
    ahead: Ahead,
) -> [[L; WIDE]; M] {
    // SAFETY: see `all_scores`.
    unsafe {
        let mut acc = [[L::splat(0.0); WIDE]; M];
        for d in first..end {
            ahead.ask::<L>(d);
            let k: [L; WIDE] = [
                keys.load(d, column),
                keys.load(d, column + L::LEN),
                keys.load(d, column + 2 * L::LEN),
                keys.load(d, column + 3 * L::LEN),
            ];
            for m in 0..M {
                let q = L::splat(*q.add(m * dim + d));
                for w in 0..WIDE {
                    acc[m][w] = q.mul_add(k[w], acc[m][w]);
                }
            }
        }
        acc
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

/// Rows of a step that see the same places of a page.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Their queries.
    pub from: usize,
    /// The end of them.
    pub to: usize,
    /// The first place.
    pub lo: usize,
    /// The end of the places.
    pub hi: usize,
}

/// Adds the values of a page, weighted, to the rescaled sums of its queries; `seen` cuts these up.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
pub unsafe fn accumulate<L: Lanes>(page: Page<'_>, s: &mut Scratch<'_>, seen: impl Iterator<Item = Seen>) {
    let (dim, units) = (page.dim, Units::new(page.kv, page.dim));
    assert!(page.bytes.len() >= page.kv.row_bytes(dim) * PAGE_LEN);
    let (start, whole) = (page.bytes.as_ptr(), dim == padded(dim));
    // SAFETY: passed on; the bytes hold all rows of the page, as asserted, and rows of floats that are no whole vectors
    // are copied to where they are.
    unsafe {
        load_scales::<L>(page, units, s);
        scale_weights::<L>(page, units.blocks, s);
        match page.kv {
            KvType::F32 if whole => sums_from::<L, _>(page, Rows::<f32>::new(start, dim), s, seen),
            KvType::F16 if whole => sums_from::<L, _>(page, Rows::<u16>::new(start, dim), s, seen),
            KvType::F32 | KvType::F16 => {
                widen_floats(page, s);
                let rows = Rows::<f32> { start: s.values.as_ptr(), stride: padded(dim) };
                all_sums::<L, _>(page, rows, s, seen);
            }
            KvType::Q8_0 => sums_from::<L, _>(page, Rows::<i8>::new(start, units.count), s, seen),
            KvType::Q4_0 => {
                sums_from::<L, _>(page, ValueNibbles { start, stride: units.count }, s, seen);
            }
        }
    }
}

/// Rows of floats as rows of `padded(dim)` 32-bit numbers.
fn widen_floats(page: Page<'_>, s: &mut Scratch<'_>) {
    let rows = page.bytes.chunks_exact(page.kv.row_bytes(page.dim));
    for (bytes, wide) in rows.take(PAGE_LEN).zip(s.values.chunks_exact_mut(padded(page.dim))) {
        if page.kv == KvType::F32 {
            for (out, x) in wide.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_ne_bytes(*x);
            }
        } else {
            for (out, x) in wide.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = half::f16::from_ne_bytes(*x).to_f32();
            }
        }
    }
}

/// The weights of all queries times the scales of each block of values.
#[inline(always)]
unsafe fn scale_weights<L: Lanes>(page: Page<'_>, blocks: usize, s: &mut Scratch<'_>) {
    assert!(s.scaled.len() >= page.to * blocks * PAGE_LEN && s.scores.len() >= page.to * PAGE_LEN);
    for query in page.from..page.to {
        for block in 0..blocks {
            for i in (0..PAGE_LEN).step_by(L::LEN) {
                // SAFETY: passed on; the slices hold so many queries and blocks, as asserted here and for the scales.
                unsafe {
                    let weights = L::load(s.scores.as_ptr().add(query * PAGE_LEN + i));
                    let scales = L::load(s.scales.as_ptr().add(block * PAGE_LEN + i));
                    let to = s.scaled.as_mut_ptr().add((query * blocks + block) * PAGE_LEN + i);
                    weights.mul(scales).store(to);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn sums_from<L: Lanes, N: Numbers>(
    page: Page<'_>,
    values: N,
    s: &mut Scratch<'_>,
    seen: impl Iterator<Item = Seen>,
) {
    // SAFETY: passed on.
    unsafe {
        if page.kv != KvType::F32 && page.widens::<L>() {
            let width = padded(page.dim);
            assert!(s.values.len() >= PAGE_LEN * width);
            for position in 0..PAGE_LEN {
                for column in (0..width).step_by(L::LEN) {
                    let to = s.values.as_mut_ptr().add(position * width + column);
                    values.load::<L>(position, column).store(to);
                }
            }
            let rows = Rows::<f32> { start: s.values.as_ptr(), stride: width };
            all_sums::<L, _>(page, rows, s, seen);
        } else {
            all_sums::<L, _>(page, values, s, seen);
        }
    }
}

/// Where the weights of a query are: with blocks, those of each block follow each other.
#[derive(Clone, Copy)]
struct Weights {
    start: *const f32,
    query: usize,
    block: usize,
}

#[inline(always)]
unsafe fn all_sums<L: Lanes, N: Numbers>(
    page: Page<'_>,
    values: N,
    s: &mut Scratch<'_>,
    seen: impl Iterator<Item = Seen>,
) {
    let (queries, width) = (s.running.len() / 3, padded(page.dim));
    let blocks = Units::new(page.kv, page.dim).blocks;
    let mut ahead = page.ahead(PAGE_LEN);
    for seen in seen {
        assert!(seen.to <= queries && s.sums.len() >= seen.to * width && seen.hi <= PAGE_LEN);
        let mut query = seen.from;
        while query < seen.to {
            // SAFETY: queries below `to` are inside the slices, as asserted; the caller vouches for the values.
            unsafe {
                let weights = if blocks > 0 {
                    let start = s.scaled.as_ptr().add(query * blocks * PAGE_LEN);
                    Weights { start, query: blocks * PAGE_LEN, block: PAGE_LEN }
                } else {
                    Weights { start: s.scores.as_ptr().add(query * PAGE_LEN), query: PAGE_LEN, block: 0 }
                };
                let rescale = s.running.as_ptr().add(2 * queries + query);
                let sums = s.sums.as_mut_ptr().add(query * width);
                let range = (seen.lo, seen.hi);
                query += if seen.to - query >= L::QUERIES && L::QUERIES == 4 {
                    all_columns::<L, N, 4>(weights, rescale, values, range, sums, width, ahead)
                } else if seen.to - query >= 2 {
                    all_columns::<L, N, 2>(weights, rescale, values, range, sums, width, ahead)
                } else {
                    all_columns::<L, N, 1>(weights, rescale, values, range, sums, width, ahead)
                };
            }
            ahead = Ahead::NOTHING;
        }
    }
}

#[inline(always)]
unsafe fn all_columns<L: Lanes, N: Numbers, const M: usize>(
    weights: Weights,
    rescale: *const f32,
    values: N,
    range: (usize, usize),
    sums: *mut f32,
    width: usize,
    mut ahead: Ahead,
) -> usize {
    let wide = width / (4 * L::LEN) * (4 * L::LEN);
    // SAFETY: see `all_sums`; columns stay below `width`, which is a multiple of the vector length.
    unsafe {
        for column in (0..wide).step_by(4 * L::LEN) {
            columns::<L, N, M, 4>(weights, rescale, values, range, sums, width, column, ahead);
            ahead = Ahead::NOTHING;
        }
        for column in (wide..width).step_by(L::LEN) {
            columns::<L, N, M, 1>(weights, rescale, values, range, sums, width, column, ahead);
            ahead = Ahead::NOTHING;
        }
    }
    M
}

#[inline(always)]
unsafe fn columns<L: Lanes, N: Numbers, const M: usize, const W: usize>(
    weights: Weights,
    rescale: *const f32,
    values: N,
    (lo, hi): (usize, usize),
    sums: *mut f32,
    width: usize,
    column: usize,
    ahead: Ahead,
) {
    // Vectors of one block, or of all where there are none.
    let same = if weights.block > 0 { (BLOCK / L::LEN).min(W) } else { W };
    // SAFETY: see `all_sums`.
    unsafe {
        let mut acc = [[L::splat(0.0); W]; M];
        for m in 0..M {
            let by = L::splat(*rescale.add(m));
            for w in 0..W {
                acc[m][w] = L::load(sums.add(m * width + column + w * L::LEN)).mul(by);
            }
        }
        for position in lo..hi {
            ahead.ask::<L>(position);
            let mut v = [L::splat(0.0); W];
            for w in 0..W {
                v[w] = values.load(position, column + w * L::LEN);
            }
            for m in 0..M {
                let at = weights.start.add(m * weights.query + position);
                let mut p = L::splat(*at.add(column / BLOCK * weights.block));
                for w in 0..W {
                    if w > 0 && w % same == 0 {
                        p = L::splat(*at.add((column + w * L::LEN) / BLOCK * weights.block));
                    }
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
