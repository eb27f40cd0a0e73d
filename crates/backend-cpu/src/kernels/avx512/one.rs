//! One row of activations with encodings of few bits, on processors that permute bytes.
//!
//! With few bits a weight, memory gives weights faster than [`rows`](super::rows) multiplies them, so here everything but the
//! products is made small. Each encoding ([`Packed`]) takes 256 numbers of two rows as bytes that are still packed, cuts
//! codes out of them by one instruction a vector, and multiplies them as they lie; the activations are laid out to match
//! once for a call. So codes that belong to one group of activations meet in one sum as far as the bytes allow, and
//! what remains to be added across is little.
//!
//! Sums are those of the contract: exact integers a group, then one lane of floats for every eighth group.

use super::bytes::{Bytes, Dwords};
use super::rows::coarse_tree;
use super::vbmi;
use crate::kernels::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, Row, chunks, code_place};
use crate::kernels::matmul::{Job, Quad};
use std::arch::asm;
use std::arch::x86_64::*;

/// Bytes ahead of the one being read that are asked for.
const AHEAD: usize = 1024;

/// The most bytes that a chunk reads.
const LONGEST: usize = 128;

/// Pairs of rows of weights at a time, far apart: hardware follows several streams better than rows side by side.
///
/// They are written so that each instruction for one pair is followed by the same one for the other: what waits for
/// operands takes places from what could run, and one pair alone is little more than a chain.
pub const PAIRS: usize = 2;

const ROWS: usize = 2 * PAIRS;

/// The bytes of a chunk of each row of the pairs.
pub type Pairs<'a> = [[&'a [u8]; 2]; PAIRS];

/// Vectors of activations of a chunk.
const VECTORS: usize = 8;

/// Where each of 32 activations of a vector lies in a chunk.
pub type Picks = [[u8; 32]; VECTORS];

/// The picks of vectors that hold these numbers of a chunk.
pub const fn picks(numbers: [[usize; 32]; VECTORS]) -> Picks {
    let mut all = [[0; 32]; VECTORS];
    let mut i = 0;
    while i < CHUNK {
        all[i / 32][i % 32] = code_place(numbers[i / 32][i % 32]) as u8;
        i += 1;
    }
    all
}

/// What a chunk of two rows comes to: exact sums of products with unsigned codes for each group, and what these are
/// multiplied by; groups of 16 need two of each.
#[derive(Clone, Copy)]
pub struct Sums {
    pub dots: [__m512i; 2],
    pub scale: [__m512; 2],
    pub offset: [__m512; 2],
}

impl Sums {
    /// No sums.
    pub const ZERO: Self = {
        // SAFETY: zeros are a value of every vector.
        unsafe { std::mem::zeroed() }
    };

    /// Those of groups of 32, without offsets.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn coarse(dots: __m512i, scale: __m512) -> Self {
        Self {
            dots: [dots, _mm512_setzero_si512()],
            scale: [scale, _mm512_setzero_ps()],
            offset: [_mm512_setzero_ps(); 2],
        }
    }
}

/// An encoding that has a kernel for one row of activations.
pub trait Packed {
    /// Bytes of 256 numbers.
    const BYTES: usize;
    /// Bytes that are read from where a chunk begins.
    const READ: usize;
    /// Whether scales belong to 16 numbers rather than 32.
    const FINE: bool = false;
    /// Whether numbers have offsets.
    const OFFSET: bool = false;
    /// What is added to each code to make it unsigned.
    const BIAS: i32;
    /// The activations of each vector.
    const PICKS: &'static Picks;
    /// The group in each lane: of 32 numbers of the chunk, or of 16 of half of it.
    const GROUPS: [usize; 8];

    /// Multiplies 256 numbers of some pairs of rows, [`READ`](Self::READ) bytes of each, with a chunk of activations.
    ///
    /// # Safety
    /// The processor must have what [`product`] needs.
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS];
}

/// Vectors of 32 bytes that a chunk of activations takes: codes, then scales, biases and sums of all groups.
const fn quads<F: Packed>() -> usize {
    VECTORS + 3 * parts::<F>()
}

const fn parts<F: Packed>() -> usize {
    if F::FINE { 2 } else { 1 }
}

/// Computes all outputs of a job with one row of activations, which it lays out in `room`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn product<F: Packed>(job: &Job<'_>, room: &mut [Quad]) {
    let chunks = chunks(job.row_len);
    let x = &mut room[..chunks * quads::<F>()];
    lay_out::<F>(&job.x.row(0), x);
    let count = job.end - job.first;
    let stream = count.div_ceil(ROWS);
    const { assert!(F::READ <= LONGEST, "a pad holds a chunk") };
    let mut pads = [[0; LONGEST]; ROWS];
    for n in 0..stream {
        let rows: [usize; ROWS] = std::array::from_fn(|i| job.first + (i * stream + n).min(count - 1));
        let starts = rows.map(|row| job.bytes[row * job.row_bytes..].as_ptr());
        let inside = rows.map(|row| inside::<F>(job, row)).into_iter().min().unwrap_or(0);
        let mut lanes = [_mm512_setzero_ps(); PAIRS];
        for (q, x) in x.chunks_exact(quads::<F>()).enumerate() {
            let mut bytes: [&[u8]; ROWS] = [&[]; ROWS];
            for (((bytes, pad), start), row) in bytes.iter_mut().zip(&mut pads).zip(starts).zip(rows) {
                let mut chunk = start.wrapping_add(q * F::BYTES);
                for at in (0..F::BYTES).step_by(64) {
                    // A prefetch may name any address.
                    _mm_prefetch::<_MM_HINT_T0>(chunk.wrapping_add(AHEAD + at).cast());
                }
                if q >= inside {
                    copy(&job.row(row)[q * F::BYTES..], F::BYTES, pad);
                    chunk = pad.as_ptr();
                }
                // SAFETY: `inside` counts chunks of which so many bytes lie in the matrix, and a pad has as many.
                *bytes = unsafe { std::slice::from_raw_parts(chunk, F::READ) };
            }
            // Called in one place, so that it is inlined: lengths and checks vanish then.
            add::<F>(bytes, x, &mut lanes);
        }
        for (lanes, rows) in lanes.into_iter().zip(rows.as_chunks::<2>().0) {
            let y = tree::<F>(lanes);
            job.y.write(0, rows[0], &y[..1]);
            job.y.write(0, rows[1], &y[1..]);
        }
    }
}

/// Chunks of a row that are whole, and whose bytes can be read where they lie.
fn inside<F: Packed>(job: &Job<'_>, row: usize) -> usize {
    let left = job.bytes.len() - row * job.row_bytes;
    if left < F::READ { 0 } else { (job.row_len / CHUNK).min((left - F::READ) / F::BYTES + 1) }
}

/// Adds the products of a chunk.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn add<F: Packed>(bytes: [&[u8]; ROWS], x: &[Quad], lanes: &mut [__m512; PAIRS]) {
    let pairs: Pairs<'_> = std::array::from_fn(|p| [bytes[2 * p], bytes[2 * p + 1]]);
    // SAFETY: this function has been entered, so the processor has what it needs.
    let sums = unsafe { F::sums(&pairs, x) };
    for (lanes, sums) in lanes.iter_mut().zip(&sums) {
        *lanes = scaled::<F>(sums, &x[VECTORS..], *lanes);
    }
}

/// Copies up to `len` bytes, and zeros behind them.
#[cold]
#[inline(never)]
fn copy(bytes: &[u8], len: usize, pad: &mut [u8; LONGEST]) {
    let len = len.min(bytes.len());
    pad.fill(0);
    pad[..len].copy_from_slice(&bytes[..len]);
}

/// Lays a row of activations out.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn lay_out<F: Packed>(row: &Row<'_>, to: &mut [Quad]) {
    for (q, to) in to.chunks_exact_mut(quads::<F>()).enumerate() {
        let line = |i: usize| {
            // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
            unsafe { _mm512_loadu_si512(row.line(q, i).0.as_ptr().cast()) }
        };
        let lines = [line(0), line(1), line(2), line(3)];
        let (codes, sides) = to.split_at_mut(VECTORS);
        for (to, picks) in codes.iter_mut().zip(F::PICKS) {
            // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
            let index = _mm512_castsi256_si512(unsafe { _mm256_loadu_si256(picks.as_ptr().cast()) });
            let first = _mm512_permutex2var_epi8(lines[0], index, lines[1]);
            let last = _mm512_permutex2var_epi8(lines[2], index, lines[3]);
            let codes = _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), first, last);
            put(to, _mm512_castsi512_si256(codes));
        }
        let (parts, order) = if F::FINE { (2, FINE_ORDER) } else { (1, COARSE_ORDER) };
        let order = F::GROUPS.map(|group| place_of(order, group) as i32);
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
        for part in 0..parts {
            let (scale, bias, sum) = self::sides(row, F::FINE, q, part);
            // SAFETY: the references cover the 32 bytes read of each, and `loadu` asks for no alignment.
            let numbers = unsafe {
                let bias = _mm256_srai_epi32::<7>(_mm256_loadu_si256(bias.as_ptr().cast()));
                [
                    _mm256_loadu_si256(scale.as_ptr().cast()),
                    _mm256_mullo_epi32(bias, _mm256_set1_epi32(F::BIAS)),
                    _mm256_loadu_si256(sum.as_ptr().cast()),
                ]
            };
            for (kind, numbers) in numbers.into_iter().enumerate() {
                put(&mut sides[kind * parts + part], _mm256_permutevar8x32_epi32(numbers, order));
            }
        }
    }
}

/// Stores half a vector of activations.
#[inline]
#[target_feature(enable = "avx2")]
pub fn put(to: &mut Quad, from: __m256i) {
    // SAFETY: the reference covers the 32 bytes written, and `storeu` asks for no alignment.
    unsafe { _mm256_storeu_si256(to.0.as_mut_ptr().cast(), from) }
}

/// Scales, biases and sums of a chunk of activations: of its groups of 32, or, `fine`, of part `part` of those of 16.
#[inline(always)]
pub fn sides<'a>(
    row: &Row<'a>,
    fine: bool,
    q: usize,
    part: usize,
) -> (&'a [f32; 8], &'a [i32; 8], &'a [f32; 8]) {
    if fine {
        let fine = &row.fine[q];
        (&fine.scale[part], &fine.bias[part], &fine.sum[part])
    } else {
        let coarse = &row.coarse[q];
        (&coarse.scale, &coarse.bias, &coarse.sum)
    }
}

/// Where a group lies in an order.
pub const fn place_of(order: [usize; 8], group: usize) -> usize {
    let mut place = 0;
    while order[place] != group {
        place += 1;
    }
    place
}

/// Takes the bias back, scales, and adds.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn scaled<F: Packed>(sums: &Sums, sides: &[Quad], mut lanes: __m512) -> __m512 {
    let parts = parts::<F>();
    let floats = |i: usize| _mm512_castsi512_ps(codes(sides, i));
    for part in 0..parts {
        let mut dots = sums.dots[part];
        if F::BIAS != 0 {
            dots = _mm512_add_epi32(dots, codes(sides, parts + part));
        }
        let scale = _mm512_mul_ps(sums.scale[part], floats(part));
        lanes = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots), lanes);
        if F::OFFSET {
            lanes = _mm512_fmadd_ps(sums.offset[part], floats(2 * parts + part), lanes);
        }
    }
    lanes
}

/// The fixed tree over eight lanes, for two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn tree<F: Packed>(lanes: __m512) -> [f32; 2] {
    let order = const {
        let mut order = [0; 16];
        let mut i = 0;
        while i < 16 {
            order[i] = place_of(F::GROUPS, COARSE_ORDER[i % 8]) as u32 + i as u32 / 8 * 8;
            i += 1;
        }
        Dwords(order)
    };
    coarse_tree(_mm512_permutexvar_ps(order.get(), lanes))
}

/// Vector `i` of activations, twice: for two rows of weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn codes(x: &[Quad], i: usize) -> __m512i {
    vbmi::twice(&x[i].0)
}

/// What [`cut`] needs for codes of `width` bits, which begin at bit `from[i]` of each byte of part `i` of 64 bits.
pub const fn cuts(width: usize, from: [usize; 8]) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 8 * width {
        // The row of a matrix that makes bit `n` is byte `7 - n`.
        let (part, n) = (i / width, i % width);
        table[8 * part + 7 - n] = 1 << (from[part] + n);
        i += 1;
    }
    Bytes(table)
}

/// The four codes of two bits of each byte.
pub static PLANES: [Bytes; 4] = [cuts(2, [0; 8]), cuts(2, [2; 8]), cuts(2, [4; 8]), cuts(2, [6; 8])];

/// Keeps the compiler from working out one pair's chain of sums after the other's, which it would to save registers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn in_step(dots: [__m512i; PAIRS]) -> [__m512i; PAIRS] {
    let [mut a, mut b] = dots;
    // SAFETY: no instruction is executed.
    unsafe {
        asm!("/* {0} {1} */", inout(zmm_reg) a, inout(zmm_reg) b, options(pure, nomem, nostack, preserves_flags))
    };
    [a, b]
}

/// Codes cut out of bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn cut(bytes: __m512i, cuts: &'static Bytes) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, cuts.get())
}

/// The bytes of two rows that a table names, 32 of each: it repeats itself.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn gather(a: __m512i, b: __m512i, table: &'static Bytes) -> __m512i {
    let table = table.get();
    _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(table, a), 0xFFFF_FFFF << 32, table, b)
}

/// The half-precision numbers at `at[i]` of 64 bytes, for [`halves`].
pub const fn words_at(at: [u8; 8]) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = at[i / 2 % 8] + (i % 2) as u8;
        i += 1;
    }
    Bytes(table)
}

/// Eight half-precision numbers of each of two rows that [`words_at`] names.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn halves(a: __m512i, b: __m512i, table: &'static Bytes) -> __m512 {
    let table = table.get();
    let both = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(table, a), 0xFFFF << 16, table, b);
    _mm512_cvtph_ps(_mm512_castsi512_si256(both))
}

/// Adds neighbours among the integers of two vectors, which fit in 16 bits: those of a lane of 128 bits of the first, then
/// of the second.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn fold(a: __m512i, b: __m512i) -> __m512i {
    _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1))
}

/// The sums of four vectors of dot products for each pair, each of whose lanes of 128 bits is one group's.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn folded(dots: [[__m512i; PAIRS]; 4], scale: [__m512; PAIRS]) -> [Sums; PAIRS] {
    let mut sums = [Sums::ZERO; PAIRS];
    for p in 0..PAIRS {
        let two = [fold(dots[0][p], dots[1][p]), fold(dots[2][p], dots[3][p])];
        sums[p] = Sums::coarse(fold(two[0], two[1]), scale[p]);
    }
    sums
}
