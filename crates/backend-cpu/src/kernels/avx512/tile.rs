//! Many rows of activations: tiles of 32 rows of weights, whose outputs lie in the lanes of two vectors.

use super::{Pair, load_floats, store_floats};
use crate::kernels::activations::{COARSE_ORDER, FINE_ORDER, Line, Side, chunks, code_place};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Job, TILE_ROWS, Tile, TileMut};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Rows of activations that share one reading of a tile: with two vectors of weights, what the registers hold.
const TOKENS: usize = 6;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Where the codes of a raw vector of two rows go, whose lanes of 128 bits are two of `a` and two of `b`.
///
/// Vector `i` of four, nibbles: a lane is a group, the low nibbles its first half.
pub const HALVES: u8 = 0;
/// Vector `i` of four, nibbles: two lanes are two groups, one in the low nibbles and one in the high ones.
pub const GROUPS: u8 = 1;
/// Vector `i` of eight, codes: two lanes are group `i`.
pub const BYTES: u8 = 2;
/// Vector `2 * i + part` of eight, codes: as in [`Pair`].
pub const PARTS: u8 = 3;

/// Unpacks 32 rows from `first` on; rows past the end of the job repeat its last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fill<F: Format>(
    job: &Job<'_>,
    first: usize,
    tile: &mut TileMut<'_>,
    fill_chunk: impl Fn(&[&[u8]; 16], &mut TileMut<'_>, (usize, usize)),
) {
    for half in 0..2 {
        let rows = sixteen(job, first + 16 * half);
        for q in 0..chunks(job.row_len) {
            with_chunk::<F>(&rows, q, |chunks| fill_chunk(chunks, tile, (q, half)));
        }
    }
}

/// The sixteen rows from `first` on; past the end of the job its last one.
#[inline]
pub fn sixteen<'a>(job: &Job<'a>, first: usize) -> [&'a [u8]; 16] {
    let mut rows: [&[u8]; 16] = [&[]; 16];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = job.row((first + i).min(job.end - 1));
    }
    rows
}

/// Calls `body` with chunk `q` of sixteen rows; a chunk that ends inside is filled up.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn with_chunk<F: Format>(rows: &[&[u8]; 16], q: usize, body: impl FnOnce(&[&[u8]; 16])) {
    let start = q * F::CHUNK_BYTES;
    let mut chunks: [&[u8]; 16] = [&[]; 16];
    if start + F::CHUNK_BYTES <= rows[0].len() {
        for (chunk, row) in chunks.iter_mut().zip(rows) {
            *chunk = &row[start..][..F::CHUNK_BYTES];
        }
        return body(&chunks);
    }
    let mut padded = [[0; LONGEST]; 16];
    for ((padded, row), chunk) in padded.iter_mut().zip(rows).zip(&mut chunks) {
        let rest = &row[start..];
        padded[..rest.len()].copy_from_slice(rest);
        *chunk = &padded[..F::CHUNK_BYTES];
    }
    body(&chunks);
}

/// Rows are paired so that transposing leaves them in order: each of these with the one four further on.
const PAIRED: [usize; 8] = [0, 1, 2, 3, 8, 9, 10, 11];

/// Vectors of eight pairs of rows.
type Eight = [__m512i; 8];

/// The raw vectors of all pairs of sixteen rows, laid out as [`PARTS`], and their scales and offsets.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn pairs(
    rows: &[&[u8]; 16],
    load: impl Fn(&[u8], &[u8]) -> Pair,
) -> ([Eight; 8], [Eight; 2], [Eight; 2]) {
    let mut raw = [[_mm512_setzero_si512(); 8]; 8];
    let (mut scale, mut offset) = ([[_mm512_setzero_si512(); 8]; 2], [[_mm512_setzero_si512(); 8]; 2]);
    for (n, &row) in PAIRED.iter().enumerate() {
        let pair = load(rows[row], rows[row + 4]);
        for i in 0..4 {
            raw[2 * i][n] = pair.low[i];
            raw[2 * i + 1][n] = pair.high[i];
        }
        for part in 0..2 {
            scale[part][n] = _mm512_castps_si512(pair.scale[part]);
            offset[part][n] = _mm512_castps_si512(pair.offset[part]);
        }
    }
    (raw, scale, offset)
}

/// Raw vector `i` of all pairs of sixteen rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn raw_of(rows: &[&[u8]; 16], raw: &impl Fn(&[u8], &[u8], usize) -> __m512i, i: usize) -> Eight {
    let pair = |row: usize| raw(rows[row], rows[row + 4], i);
    [pair(0), pair(1), pair(2), pair(3), pair(8), pair(9), pair(10), pair(11)]
}

/// The scales and offsets of all pairs of sixteen rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn scales_of(rows: &[&[u8]; 16], scales: impl Fn(&[u8], &[u8]) -> [__m512; 2]) -> (Eight, Eight) {
    let (mut scale, mut offset) = ([_mm512_setzero_si512(); 8], [_mm512_setzero_si512(); 8]);
    for (n, &row) in PAIRED.iter().enumerate() {
        let [s, o] = scales(rows[row], rows[row + 4]);
        scale[n] = _mm512_castps_si512(s);
        offset[n] = _mm512_castps_si512(o);
    }
    (scale, offset)
}

/// A chunk of sixteen rows of any format, by way of its pairs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fill_pairs<F: Format>(
    rows: &[&[u8]; 16],
    tile: &mut TileMut<'_>,
    (q, half): (usize, usize),
    load: impl Fn(&[u8], &[u8]) -> Pair,
) {
    let (raw, scale, offset) = pairs(rows, load);
    for (i, raw) in raw.into_iter().enumerate() {
        spread::<PARTS>(transpose(raw), i, |group, v, z| {
            let to = &mut tile.codes[tile.codes_at::<F>(q, group, v) + half].0;
            // SAFETY: the reference covers the 64 bytes written, and `storeu` asks for no alignment.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), z) }
        });
    }
    for part in 0..if F::FINE { 2 } else { 1 } {
        store_scales::<F>(scale[part], offset[part], tile, (q, part), half);
    }
}

/// A chunk of sixteen rows of a format with groups of 32 whose bytes can be transposed as they are.
///
/// `raw` gives vector `i` of two rows, laid out as `LAYOUT` says; `codes` makes codes of nibbles or bytes; `scales` gives
/// scales and offsets as in [`Pair`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fill_raw<F: Format, const LAYOUT: u8>(
    rows: &[&[u8]; 16],
    tile: &mut TileMut<'_>,
    (q, half): (usize, usize),
    raw: impl Fn(&[u8], &[u8], usize) -> __m512i,
    codes: impl Fn(__m512i) -> __m512i,
    scales: impl Fn(&[u8], &[u8]) -> [__m512; 2],
) {
    // Then the compiler needs no comparisons below.
    assert!(!F::FINE && rows.iter().all(|row| row.len() == F::CHUNK_BYTES));
    let mut store = tile.chunk_codes(q, half);
    let mut one = |i: usize| {
        spread::<LAYOUT>(transpose(raw_of(rows, &raw, i)), i, |group, v, z| store.put(group, v, codes(z)));
    };
    one(0);
    one(1);
    one(2);
    one(3);
    if LAYOUT >= BYTES {
        one(4);
        one(5);
        one(6);
        one(7);
    }
    let (scale, offset) = scales_of(rows, scales);
    store_scales::<F>(scale, offset, tile, (q, 0), half);
}

/// Gives `store` the group, the place in it, and the codes of each part of a transposed raw vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn spread<const LAYOUT: u8>(z: [__m512i; 8], i: usize, mut store: impl FnMut(usize, usize, __m512i)) {
    let mask = _mm512_set1_epi8(15);
    for j in 0..8 {
        match LAYOUT {
            HALVES => {
                store(2 * i + j / 4, j % 4, _mm512_and_si512(z[j], mask));
                store(2 * i + j / 4, 4 + j % 4, _mm512_and_si512(_mm512_srli_epi16::<4>(z[j]), mask));
            }
            GROUPS => {
                store(2 * i, j, _mm512_and_si512(z[j], mask));
                store(2 * i + 1, j, _mm512_and_si512(_mm512_srli_epi16::<4>(z[j]), mask));
            }
            BYTES => store(i, j, z[j]),
            _ => store(i / 2 * 2 + j / 4, i % 2 * 4 + j % 4, z[j]),
        }
    }
}

/// Which group each place of the scales in a [`Pair`] belongs to.
#[inline(always)]
pub const fn order<F: Format>() -> [usize; 8] {
    if F::FINE { FINE_ORDER } else { COARSE_ORDER }
}

/// Stores the scales and offsets of part `part` of chunk `q`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn store_scales<F: Format>(
    scale: [__m512i; 8],
    offset: [__m512i; 8],
    tile: &mut TileMut<'_>,
    (q, part): (usize, usize),
    half: usize,
) {
    let order = order::<F>();
    let (scale, offset) = (transpose(scale), transpose(offset));
    for j in 0..8 {
        let at = tile.group_at::<F>(q, part, order[j]) + half;
        store_floats(_mm512_castsi512_ps(scale[j]), &mut tile.scale[at].0);
        if F::OFFSET {
            store_floats(_mm512_castsi512_ps(offset[j]), &mut tile.offset[at].0);
        }
    }
}

/// Vectors of integers 0, 1, 2, 3 of each lane of 128 bits of four vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn in_lanes(z: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(z[0], z[1]), _mm512_unpackhi_epi32(z[0], z[1]));
    let (c, d) = (_mm512_unpacklo_epi32(z[2], z[3]), _mm512_unpackhi_epi32(z[2], z[3]));
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}

/// Eight vectors, each with the integers 0 to 7 of two rows `a` and `b`, to vectors of integer 0, 1, ... of sixteen rows:
/// four `a`, their `b`, the other four `a`, their `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn transpose(z: [__m512i; 8]) -> [__m512i; 8] {
    let (s, t) = (in_lanes([z[0], z[1], z[2], z[3]]), in_lanes([z[4], z[5], z[6], z[7]]));
    [
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[0], t[0]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[1], t[1]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[2], t[2]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[3], t[3]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[0], t[0]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[1], t[1]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[2], t[2]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[3], t[3]),
    ]
}

/// Calls a function for the kind of tile that a format has: all formats of a kind share it.
macro_rules! kind {
    ($format:ident, $function:ident($($arg:expr),*)) => {
        match ($format::FINE, $format::OFFSET, $format::BIAS > 0) {
            (false, false, false) => $function::<false, false, false>($($arg),*),
            (false, false, true) => $function::<false, false, true>($($arg),*),
            (false, true, false) => $function::<false, true, false>($($arg),*),
            (false, true, true) => $function::<false, true, true>($($arg),*),
            (true, false, false) => $function::<true, false, false>($($arg),*),
            (true, false, true) => $function::<true, false, true>($($arg),*),
            (true, true, false) => $function::<true, true, false>($($arg),*),
            (true, true, true) => $function::<true, true, true>($($arg),*),
        }
    };
}

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    kind!(F, whole(job, first, tile, shift::<F>()));
}

/// A tile's codes carry their format's own bias; sums of activation codes are kept 128 times as large. This shift makes
/// them as large as the bias asks for.
pub const fn shift<F: Format>() -> i32 {
    7 - (if F::BIAS > 0 { F::BIAS.ilog2() } else { 0 }) as i32
}

/// Calls a function with `T` as its last generic argument.
macro_rules! by_count {
    ($count:expr, $function:ident::<$($generic:ident),*>($($arg:expr),*)) => {
        match $count {
            1 => $function::<$($generic,)* 1>($($arg),*),
            2 => $function::<$($generic,)* 2>($($arg),*),
            3 => $function::<$($generic,)* 3>($($arg),*),
            4 => $function::<$($generic,)* 4>($($arg),*),
            5 => $function::<$($generic,)* 5>($($arg),*),
            _ => $function::<$($generic,)* TOKENS>($($arg),*),
        }
    };
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn whole<const FINE: bool, const OFFSET: bool, const BIASED: bool>(
    job: &Job<'_>,
    first: usize,
    tile: &Tile<'_>,
    shift: i32,
) {
    let count = job.x.count();
    let blocks = count.div_ceil(TOKENS);
    let mut ahead = Ahead::new(job, first + TILE_ROWS, TILE_ROWS, blocks * groups::<FINE>(job.row_len));
    let mut lanes = [[[_mm512_setzero_ps(); 2]; TOKENS]; 8];
    let mut t = 0;
    for block in 0..blocks {
        // Blocks of about the same size: a small one would not keep the multipliers busy.
        let end = (block + 1) * count / blocks;
        let at = (first, t);
        t += by_count!(end - t, rows::<FINE, OFFSET, BIASED>(job, at, tile, shift, &mut lanes, &mut ahead));
    }
}

/// Groups of a row.
pub fn groups<const FINE: bool>(row_len: usize) -> usize {
    row_len.div_ceil(if FINE { 16 } else { 32 })
}

/// The next rows of weights, which come into the L2 cache while these are multiplied.
pub struct Ahead {
    next: *const u8,
    end: *const u8,
    lines: usize,
}

impl Default for Ahead {
    /// Nothing.
    fn default() -> Self {
        Self { next: std::ptr::null(), end: std::ptr::null(), lines: 0 }
    }
}

impl Ahead {
    /// The `count` rows from `first` on, in about so many steps.
    pub fn new(job: &Job<'_>, first: usize, count: usize, steps: usize) -> Self {
        let at = |row: usize| job.bytes.as_ptr().wrapping_add(row * job.row_bytes);
        let lines = (count * job.row_bytes).div_ceil(64).div_ceil(steps.max(1));
        Self { next: at(first), end: at(first + count), lines }
    }

    /// One step.
    #[inline(always)]
    pub fn step(&mut self) {
        for _ in 0..self.lines {
            if self.next < self.end {
                // SAFETY: every processor with vectors has the instruction, and a prefetch may name any address.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(self.next.cast()) };
                self.next = self.next.wrapping_add(64);
            }
        }
    }
}

/// The sums of one lane of the contract for 32 outputs and `T` rows of activations.
pub type Sums<const T: usize> = [[__m512; 2]; T];

/// `T` rows of activations: where their lines and the sides of their groups begin, and how many chunks they have.
pub struct X<'a, const T: usize> {
    lines: [*const Line; T],
    sides: [*const Side; T],
    stride: usize,
    life: PhantomData<&'a Line>,
}

impl<'a, const T: usize> X<'a, T> {
    /// Those from `t` on.
    #[inline(always)]
    pub fn new<const FINE: bool>(job: &Job<'a>, t: usize) -> Self {
        let stride = chunks(job.row_len);
        let (mut lines, mut sides) = ([std::ptr::null(); T], [std::ptr::null(); T]);
        for i in 0..T {
            let row = job.x.lanes::<FINE>(t + i);
            assert!(row.lines.len() == 4 * stride && row.sides.len() == if FINE { 16 } else { 8 } * stride);
            (lines[i], sides[i]) = (row.lines.as_ptr(), row.sides.as_ptr());
        }
        Self { lines, sides, stride, life: PhantomData }
    }
}

/// Multiplies a tile with `T` rows of activations from `t` on; returns `T`. In `lanes` there is room for sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rows<const FINE: bool, const OFFSET: bool, const BIASED: bool, const T: usize>(
    job: &Job<'_>,
    (first, t): (usize, usize),
    tile: &Tile<'_>,
    shift: i32,
    lanes: &mut [Sums<TOKENS>; 8],
    ahead: &mut Ahead,
) -> usize {
    let x = X::<T>::new::<FINE>(job, t);
    for (lane, sums) in lanes.iter_mut().enumerate() {
        // Every eighth group; the last chunk of a row may end before this lane.
        let groups = (groups::<FINE>(job.row_len) + 7 - lane) / 8;
        sums[..T].copy_from_slice(&sum::<FINE, OFFSET, BIASED, T>(tile, &x, lane, groups, shift, ahead));
    }
    let count = TILE_ROWS.min(job.end - first);
    for i in 0..T {
        let mut y = [0.0; TILE_ROWS];
        for half in 0..2 {
            let to: &mut [f32; 16] = y[16 * half..].first_chunk_mut().expect("two halves");
            store_floats(tree(|lane| lanes[lane][i][half]), to);
        }
        if count == TILE_ROWS {
            job.y.write(t + i, first, &y);
        } else {
            job.y.write(t + i, first, &y[..count]);
        }
    }
    T
}

/// The products of the `groups` groups of lane `lane` of a tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn sum<const FINE: bool, const OFFSET: bool, const BIASED: bool, const T: usize>(
    tile: &Tile<'_>,
    x: &X<'_, T>,
    lane: usize,
    groups: usize,
    shift: i32,
    ahead: &mut Ahead,
) -> Sums<T> {
    let (parts, vectors) = if FINE { (2, 4) } else { (1, 8) };
    let first = tile.lane(lane) * parts;
    let codes = &tile.codes[first * vectors * 2..][..groups * vectors * 2];
    let scale = &tile.scale[first * 2..][..groups * 2];
    let offset = &tile.offset[first * 2..][..groups * 2];
    assert!(groups.div_ceil(parts) <= x.stride && lane < 8, "groups of the row");
    let (stride, side) = (x.stride, lane * x.stride * parts);
    let shift = _mm512_set1_epi32(shift);
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for g in 0..groups {
        let (q, part) = (g / parts, g % parts);
        let (group32, half) = if FINE { (4 * part + lane / 2, lane % 2) } else { (lane, 0) };
        let line = group32 / 2 * stride + q;
        let at = code_place(32 * group32 + 16 * half) % 64;
        ahead.step();
        let mut dots = [[_mm512_setzero_si512(); 2]; T];
        if BIASED {
            for i in 0..T {
                // SAFETY: a row has sides for eight lanes of `stride` chunks of so many parts.
                let bias = _mm512_set1_epi32(unsafe { (*x.sides[i].add(side + g)).bias });
                dots[i] = [_mm512_srav_epi32(bias, shift); 2];
            }
        }
        for v in 0..vectors {
            let w = &codes[(g * vectors + v) * 2..][..2];
            let w = [load_codes(&w[0].0), load_codes(&w[1].0)];
            let at = at + v / 4 * 32 + v % 4 * 4;
            for i in 0..T {
                // SAFETY: a row has four lines for each of `stride` chunks, and `at` names four codes of a line.
                let four =
                    unsafe { (*x.lines[i].add(line)).0.as_ptr().add(at).cast::<i32>().read_unaligned() };
                let four = _mm512_set1_epi32(four);
                dots[i][0] = _mm512_dpbusd_epi32(dots[i][0], w[0], four);
                dots[i][1] = _mm512_dpbusd_epi32(dots[i][1], w[1], four);
            }
        }
        for n in 0..2 {
            let w_scale = load_floats(&scale[2 * g + n].0);
            for i in 0..T {
                // SAFETY: as above.
                let scale = _mm512_set1_ps(unsafe { (*x.sides[i].add(side + g)).scale });
                let dot = _mm512_cvtepi32_ps(dots[i][n]);
                sums[i][n] = _mm512_fmadd_ps(_mm512_mul_ps(w_scale, scale), dot, sums[i][n]);
            }
            if OFFSET {
                let w_offset = load_floats(&offset[2 * g + n].0);
                for i in 0..T {
                    // SAFETY: as above.
                    let sum = _mm512_set1_ps(unsafe { (*x.sides[i].add(side + g)).sum });
                    sums[i][n] = _mm512_fmadd_ps(w_offset, sum, sums[i][n]);
                }
            }
        }
    }
    sums
}

/// The eight lanes of the contract, added.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn tree(lane: impl Fn(usize) -> __m512) -> __m512 {
    let sum = |a, b| _mm512_add_ps(a, b);
    let even = sum(sum(lane(0), lane(4)), sum(lane(2), lane(6)));
    let odd = sum(sum(lane(1), lane(5)), sum(lane(3), lane(7)));
    sum(sum(even, odd), _mm512_setzero_ps())
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_codes(codes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}
