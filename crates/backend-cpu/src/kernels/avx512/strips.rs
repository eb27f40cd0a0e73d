//! Ternary numbers by strips of sixteen rows, see [`strips`](crate::kernels::strips): `tq1_0` and `ptq1_0`.
//!
//! A code is an index: one permutation of bytes for each of its numbers gives these for four numbers of sixteen rows, which
//! are multiplied as they come with four activations of a row. Few rows of activations are multiplied together, as far as the
//! registers hold their sums; tiles for many rows have the same order as strips.

use super::bytes::Bytes;
use super::one::{place_of, put};
use super::{amx, load, store_floats, tile};
use crate::kernels::activations::{COARSE_ORDER, Row, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Blocks, CHUNK_QUADS, Job, Quad, Tile, TileMut};
use crate::kernels::strips::{CODES, Layout, STRIP_ROWS};
use std::arch::x86_64::*;

/// Bytes ahead of the codes being read that are asked for, to come into the first cache and into the second.
///
/// A core waits for few lines on their way into its first cache, fewer than keep the memory busy behind one stream while it
/// computes; more may be on their way into the second.
const NEAR: usize = 2048;
const FAR: usize = 12 << 10;

/// Groups of 32 of a chunk.
const GROUPS: usize = 8;

/// [`Quad`]s of a chunk of a row of activations: codes, then scales and biases of its groups.
const QUADS: usize = GROUPS + 2;

/// Rows of activations that are laid out at a time.
const TOKENS: usize = CHUNK_QUADS / QUADS;

/// The most rows of activations whose sums lie in registers.
const MOST: usize = 4;

/// What belongs to an encoding.
trait Ternary {
    const LAYOUT: Layout;
}

/// Tiles of ternary numbers.
impl<T: Ternary> Format for T {
    const CHUNK_BYTES: usize = CODES + T::LAYOUT.side_bytes();
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

struct Tq1_0;

impl Ternary for Tq1_0 {
    const LAYOUT: Layout = Layout { block_len: 256, scale_at: 52 };
}

struct Ptq1_0;

impl Ternary for Ptq1_0 {
    const LAYOUT: Layout = Layout { block_len: 128, scale_at: 26 };
}

/// The kernels of these encodings.
pub static KERNELS: &[(Blocks, Layout)] =
    &[(blocks::<Tq1_0>("tq1_0"), Tq1_0::LAYOUT), (blocks::<Ptq1_0>("ptq1_0"), Ptq1_0::LAYOUT)];

const fn blocks<T: Ternary>(name: &'static str) -> Blocks {
    Blocks { name, few: few::<T>, fill: fill::<T>, tile: many::<T> }
}

/// Number `n` of the codes of three groups, by the low six bits of a byte, the last of which means nothing.
static THREES: [Bytes; 3] = [digits(32, 0), digits(32, 1), digits(32, 2)];
/// The same of two groups: the last two bits mean nothing.
static TWOS: [Bytes; 2] = [digits(16, 0), digits(16, 1)];

const fn digits(codes: usize, n: u32) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (i % codes / 3usize.pow(n) % 3) as u8;
        i += 1;
    }
    Bytes(table)
}

/// Affine maps that move bits `2 v` and `2 v + 1` of each byte to bits 3 and 4.
static UPPER: [i64; 4] = {
    let mut maps = [0; 4];
    let mut v = 0;
    while v < 4 {
        // The row of a matrix that makes bit `n` is byte `7 - n`.
        maps[v] = 1 << (8 * 4 + 2 * v) | 1 << (8 * 3 + 2 * v + 1);
        v += 1;
    }
    maps
};

/// The vectors of codes of a chunk.
struct Codes<'a>(&'a [u8; CODES]);

impl<'a> Codes<'a> {
    #[inline(always)]
    fn of(strip: &'a [u8], q: usize) -> Self {
        Self(strip[q * CODES..].first_chunk().expect("a strip holds its chunks"))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn vector(&self, i: usize) -> __m512i {
        load(self.0, 64 * i)
    }

    /// Vector `v` of groups 0 to 2.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni")]
    fn first(&self, v: usize) -> [__m512i; 3] {
        threes(self.vector(v))
    }

    /// Vector `v` of groups 3 to 5.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni")]
    fn second(&self, v: usize) -> [__m512i; 3] {
        let low = _mm512_srli_epi16::<5>(self.vector(v));
        let upper =
            _mm512_gf2p8affine_epi64_epi8::<0>(self.vector(12 + v / 4), _mm512_set1_epi64(UPPER[v % 4]));
        threes(_mm512_ternarylogic_epi64::<0xCA>(_mm512_set1_epi8(7), low, upper))
    }

    /// Vector `v` of groups 6 and 7.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni")]
    fn third(&self, v: usize) -> [__m512i; 2] {
        let index = self.vector(8 + v % 4);
        let index = if v < 4 { index } else { _mm512_srli_epi16::<4>(index) };
        let number = |n: usize| _mm512_permutexvar_epi8(index, TWOS[n].get());
        [number(0), number(1)]
    }
}

/// The three numbers of each code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni")]
fn threes(codes: __m512i) -> [__m512i; 3] {
    let number = |n: usize| _mm512_permutexvar_epi8(codes, THREES[n].get());
    [number(0), number(1), number(2)]
}

/// The scales of group `g` of chunk `q` of sixteen rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn scale<T: Ternary>(strip: &[u8], chunks: usize, q: usize, g: usize) -> __m512 {
    let at = chunks * CODES + q * T::LAYOUT.side_bytes() + g * 32 / T::LAYOUT.block_len * 2 * STRIP_ROWS;
    let halves: &[u8; 32] = strip[at..].first_chunk().expect("a strip holds its scales");
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) })
}

/// Few rows of activations.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn few<T: Ternary>(job: &Job<'_>, room: &mut [Quad]) {
    let len = chunks(job.row_len) * QUADS;
    for t in (0..job.x.count()).step_by(TOKENS) {
        let count = TOKENS.min(job.x.count() - t);
        let x = &mut room[..count * len];
        for (i, x) in x.chunks_exact_mut(len).enumerate() {
            lay_out(&job.x.row(t + i), x);
        }
        for first in (job.first..job.end).step_by(STRIP_ROWS) {
            let mut i = 0;
            while i < count {
                let x = &x[i * len..];
                i += match count - i {
                    1 => sixteen::<T, 1>(job, first, t + i, x),
                    2 | 3 => sixteen::<T, 2>(job, first, t + i, x),
                    _ => sixteen::<T, MOST>(job, first, t + i, x),
                };
            }
        }
    }
}

/// Lays a row of activations out: codes, scales and biases of the groups in order.
#[inline]
#[target_feature(enable = "avx2")]
fn lay_out(row: &Row<'_>, to: &mut [Quad]) {
    let places: [i32; GROUPS] = std::array::from_fn(|group| place_of(COARSE_ORDER, group) as i32);
    for (q, (to, coarse)) in to.chunks_exact_mut(QUADS).zip(row.coarse).enumerate() {
        for (g, to) in to[..GROUPS].iter_mut().enumerate() {
            let line = &row.line(q, g / 2).0;
            for (to, half) in to.0.chunks_exact_mut(16).zip(line.chunks_exact(32)) {
                let codes = half[g % 2 * 16..][..16].iter();
                to.iter_mut().zip(codes).for_each(|(to, code)| *to = *code as u8);
            }
        }
        // SAFETY: the references cover the 32 bytes read of each, and `loadu` asks for no alignment.
        let [places, scale, bias] = unsafe {
            [places.as_ptr().cast(), coarse.scale.as_ptr().cast(), coarse.bias.as_ptr().cast()]
                .map(|from| _mm256_loadu_si256(from))
        };
        put(&mut to[GROUPS], _mm256_permutevar8x32_epi32(scale, places));
        put(&mut to[GROUPS + 1], _mm256_permutevar8x32_epi32(_mm256_srai_epi32::<7>(bias), places));
    }
}

/// Number `i` of a quad, for all rows of a strip.
#[inline]
#[target_feature(enable = "avx512f")]
fn each(x: &Quad, i: usize) -> __m512i {
    // SAFETY: the reference covers eight integers, to which it is aligned.
    let numbers: &[i32; 8] = unsafe { &*x.0.as_ptr().cast() };
    _mm512_set1_epi32(numbers[i])
}

/// Multiplies a strip with `R` rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn sixteen<T: Ternary, const R: usize>(job: &Job<'_>, first: usize, t: usize, x: &[Quad]) -> usize {
    let chunks = chunks(job.row_len);
    let x: [&[Quad]; R] = std::array::from_fn(|r| &x[r * chunks * QUADS..(r + 1) * chunks * QUADS]);
    let strip = job.row(first / STRIP_ROWS);
    let mut lanes = [[_mm512_setzero_ps(); GROUPS]; R];
    for q in 0..chunks {
        let codes = Codes::of(strip, q);
        let at = strip[q * CODES..].as_ptr();
        for line in (0..CODES).step_by(64) {
            // A prefetch may name any address.
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(NEAR + line).cast());
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(FAR + line).cast());
        }
        let x: [&[Quad; QUADS]; R] = x.map(|x| x[q * QUADS..].first_chunk().expect("a row holds its chunks"));
        let scale = |g: usize| scale::<T>(strip, chunks, q, g);
        groups::<R, 3>(&x, &mut lanes, 0, |v| codes.first(v), scale);
        groups::<R, 3>(&x, &mut lanes, 3, |v| codes.second(v), scale);
        groups::<R, 2>(&x, &mut lanes, 6, |v| codes.third(v), scale);
    }
    for (r, l) in lanes.iter().enumerate() {
        let add = |a: usize, b: usize| _mm512_add_ps(l[a], l[b]);
        let (even, odd) = (_mm512_add_ps(add(0, 4), add(2, 6)), _mm512_add_ps(add(1, 5), add(3, 7)));
        let mut y = [0.0; STRIP_ROWS];
        store_floats(_mm512_add_ps(_mm512_add_ps(even, odd), _mm512_setzero_ps()), &mut y);
        job.y.write(t + r, first, &y[..STRIP_ROWS.min(job.end - first)]);
    }
    R
}

/// Adds the products of the `N` groups from `first` on to their lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn groups<const R: usize, const N: usize>(
    x: &[&[Quad; QUADS]; R],
    lanes: &mut [[__m512; GROUPS]; R],
    first: usize,
    codes: impl Fn(usize) -> [__m512i; N],
    scale: impl Fn(usize) -> __m512,
) {
    let mut sums = [[_mm512_setzero_si512(); N]; R];
    for (sums, x) in sums.iter_mut().zip(x) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = each(&x[GROUPS + 1], first + i);
        }
    }
    for v in 0..8 {
        let codes = codes(v);
        for (sums, x) in sums.iter_mut().zip(x) {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_dpbusd_epi32(*sum, codes[i], each(&x[first + i], v));
            }
        }
    }
    for i in 0..N {
        let scale = scale(first + i);
        for ((sums, x), lanes) in sums.iter().zip(x).zip(lanes.iter_mut()) {
            let scale = _mm512_mul_ps(scale, _mm512_castsi512_ps(each(&x[GROUPS], first + i)));
            lanes[first + i] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sums[i]), lanes[first + i]);
        }
    }
}

/// Unpacks two strips into a tile; past the last one it comes again.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn fill<T: Ternary>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
    let chunks = chunks(job.row_len);
    for half in 0..2 {
        let strip = job.row((first / STRIP_ROWS + half).min((job.end - 1) / STRIP_ROWS));
        for q in 0..chunks {
            let codes = Codes::of(strip, q);
            let mut to = tile.chunk_codes(q, half);
            for v in 0..8 {
                let (a, b, c) = (codes.first(v), codes.second(v), codes.third(v));
                a.into_iter()
                    .chain(b)
                    .chain(c)
                    .enumerate()
                    .for_each(|(group, codes)| to.put(group, v, codes));
            }
            for g in 0..GROUPS {
                let at = tile.group_at::<T>(q, 0, g) + half;
                store_floats(scale::<T>(strip, chunks, q, g), &mut tile.scale[at].0);
            }
        }
    }
    if amx::takes::<T>(job) {
        amx::centre::<T>(tile, job.row_len);
    }
}

/// Many rows of activations.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn many<T: Ternary>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    if amx::takes::<T>(job) {
        amx::product::<T>(job, first, tile);
    } else {
        tile::product::<T>(job, first, tile);
    }
}
