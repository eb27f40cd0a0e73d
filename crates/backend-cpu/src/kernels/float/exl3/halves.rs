//! The same where the processor has arithmetic in half precision: 32 states of 16 bits in a vector.
//!
//! A permutation of bytes brings the four bytes with two neighbouring states into each 32 bits, in the order of the inputs,
//! and one shift of 16 bits out of 64 leaves the states. The codebooks' 32 bits are two vectors of 16.

use super::super::fold;
use crate::kernels::avx512::fp16::{add, multiply_add};
use crate::kernels::avx512::vbmi::{multishift, permute};
use crate::kernels::matmul::Job;
use nibble_quant::Codec;
use nibble_quant::exl3::{Codebook, Exl3, input};
use std::arch::x86_64::*;

/// Numbers at a time: two blocks.
pub const AT_ONCE: usize = 32;

/// Rows of weights at a time.
const ROWS: usize = 4;

/// Bytes that are loaded for two blocks.
const LOADED: usize = 64;

/// Bytes ahead of the one being read that are asked for.
const AHEAD: usize = 2048;

/// Where the states of two blocks lie.
struct Places {
    /// For each byte of sixteen pairs of states, the byte of the blocks.
    bytes: [u8; 64],
    /// Where each byte of the states begins in its 64 bits.
    shift: [u8; 64],
    /// Bytes of two blocks.
    stride: usize,
}

impl Places {
    fn of(codec: &Exl3) -> Self {
        let (bits, block_bytes) = (codec.bits, codec.spec().block_bytes);
        let mut places = Self { bytes: [0; 64], shift: [0; 64], stride: 2 * block_bytes };
        for (block, j) in (0..32).map(|i| (i / 16, i % 16)) {
            let lane = 16 * block + input(j);
            // The state before an odd lane is that of the lane before it.
            let first = j / 4 * (16 + 3 * bits) + j % 4 / 2 * 2 * bits;
            let (pair, odd) = (lane / 2, lane % 2);
            for i in 0..4 {
                // Bytes hold their first bit highest.
                places.bytes[4 * pair + 3 - i] = (block * block_bytes + first / 8 + i) as u8;
            }
            let at = 32 * (pair % 2) + 16 - first % 8 - odd * bits;
            (places.shift[2 * lane], places.shift[2 * lane + 1]) = (at as u8, at as u8 + 8);
        }
        places
    }
}

/// The arithmetic of a codebook: [`Codebook::value`] for 32 states.
trait Book {
    /// # Safety
    /// The processor must have the instructions of [`product`].
    unsafe fn values(states: __m512i) -> __m512i;
}

struct ThreeInst;
struct Mcg;
struct Mul1;

/// The lower and the upper 16 bits of states times `by`.
#[inline(always)]
unsafe fn times(states: __m512i, by: u32) -> [__m512i; 2] {
    // SAFETY: the caller promises that the instructions are there.
    unsafe {
        let (low, high) = (_mm512_set1_epi16(by as i16), _mm512_set1_epi16((by >> 16) as i16));
        let carried = _mm512_mulhi_epu16(states, low);
        let high = _mm512_add_epi16(carried, _mm512_mullo_epi16(states, high));
        [_mm512_mullo_epi16(states, low), high]
    }
}

/// The sum of the numbers that 16 bits and 16 bits become.
#[inline(always)]
unsafe fn two_halves(mixed: [__m512i; 2]) -> __m512i {
    // SAFETY: the caller promises that the instructions are there.
    unsafe {
        let (kept, flipped) = (_mm512_set1_epi16(0x8FFFu16 as i16), _mm512_set1_epi16(0x3B60));
        let half = |mixed| _mm512_ternarylogic_epi32::<0x6A>(mixed, kept, flipped);
        add(half(mixed[0]), half(mixed[1]))
    }
}

impl Book for ThreeInst {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let more = 64_248_484u32;
            let [low, high] = times(states, 89_226_354);
            let sum = _mm512_add_epi16(low, _mm512_set1_epi16(more as i16));
            let high = _mm512_add_epi16(high, _mm512_set1_epi16((more >> 16) as i16));
            let carry = _mm512_cmplt_epu16_mask(sum, low);
            two_halves([sum, _mm512_mask_add_epi16(high, carry, high, _mm512_set1_epi16(1))])
        }
    }
}

impl Book for Mcg {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe { two_halves(times(states, 0xCBAC_1FED)) }
    }
}

impl Book for Mul1 {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let [low, high] = times(states, 0x83DC_D12D);
            let sum = |bytes| _mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1));
            let sum = _mm512_add_epi16(sum(low), sum(high));
            // 1024 and what is added to it below 2048 are the bits of the half-precision number.
            let sum = _mm512_add_epi16(sum, _mm512_set1_epi16(0x6400));
            multiply_add(sum, _mm512_set1_epi16(0x1EEE), _mm512_set1_epi16(0xC931u16 as i16))
        }
    }
}

/// Computes every output of a job.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product(codec: &Exl3, job: &Job<'_>) {
    let places = Places::of(codec);
    match codec.book {
        Codebook::ThreeInst => with::<ThreeInst>(job, &places),
        Codebook::Mcg => with::<Mcg>(job, &places),
        Codebook::Mul1 => with::<Mul1>(job, &places),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn with<B: Book>(job: &Job<'_>, places: &Places) {
    let mut t = 0;
    while t < job.x.count() {
        t += match job.x.count() - t {
            4.. => each_row::<B, 4>(job, places, t),
            2.. => each_row::<B, 2>(job, places, t),
            _ => each_row::<B, 1>(job, places, t),
        };
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn each_row<B: Book, const T: usize>(job: &Job<'_>, places: &Places, t: usize) -> usize {
    // Streams far apart: each goes on where it is when a row ends.
    let stream = (job.end - job.first) / ROWS;
    for n in job.first..job.first + stream {
        tile::<B, ROWS, T>(job, places, std::array::from_fn(|r| n + r * stream), t);
    }
    for n in job.first + ROWS * stream..job.end {
        tile::<B, 1, T>(job, places, [n], t);
    }
    T
}

/// `R` rows of weights times `T` rows of activations from `t` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile<B: Book, const R: usize, const T: usize>(job: &Job<'_>, places: &Places, n: [usize; R], t: usize) {
    // SAFETY: both references cover the 64 bytes read, and `loadu` asks for no alignment.
    let (bytes, shift) = unsafe {
        (_mm512_loadu_si512(places.bytes.as_ptr().cast()), _mm512_loadu_si512(places.shift.as_ptr().cast()))
    };
    // What is loaded beyond a block does not count, so it may be of the rows behind.
    let rows: [&[u8]; R] = n.map(|n| &job.bytes[n * job.row_bytes..]);
    let x: [&[f32]; T] = std::array::from_fn(|i| &job.x.row(t + i).floats[..job.row_len]);
    let mut sums = [[_mm512_setzero_ps(); T]; R];
    for i in 0..job.row_len / AT_ONCE {
        let at = i * places.stride;
        let mut now = [[_mm512_setzero_ps(); 2]; T];
        for i_of_x in 0..T {
            now[i_of_x] = load_x(x[i_of_x], i * AT_ONCE);
        }
        for r in 0..R {
            // A prefetch may name any address.
            _mm_prefetch::<_MM_HINT_T0>(rows[r].as_ptr().wrapping_add(AHEAD + at).cast());
            let states = multishift(shift, permute(bytes, load(rows[r], at)));
            // SAFETY: this function has the instructions that are asked for.
            let values = unsafe { B::values(states) };
            let first = _mm512_cvtph_ps(_mm512_castsi512_si256(values));
            let second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(values));
            for i in 0..T {
                sums[r][i] = _mm512_fmadd_ps(first, now[i][0], sums[r][i]);
                sums[r][i] = _mm512_fmadd_ps(second, now[i][1], sums[r][i]);
            }
        }
    }
    for i in 0..T {
        for r in 0..R {
            let mut lanes = [0.0; 16];
            // SAFETY: the array has room for the 64 bytes written, and `storeu` asks for no alignment.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums[r][i]) };
            job.y.write(t + i, n[r], &[fold(&lanes)]);
        }
    }
}

/// The bytes at `at`, filled up with zeros at the end of all.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &[u8], at: usize) -> __m512i {
    let rest = &row[at..];
    let mut padded = [0; LOADED];
    let bytes = rest.first_chunk::<LOADED>().unwrap_or_else(|| {
        padded[..rest.len()].copy_from_slice(rest);
        &padded
    });
    // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// 32 numbers from number `k` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_x(x: &[f32], k: usize) -> [__m512; 2] {
    let x: &[f32; 32] = x[k..].first_chunk().expect("32 numbers");
    // SAFETY: the reference covers the 128 bytes read, and `loadu` asks for no alignment.
    unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16))] }
}
