//! Kernels for AVX-512 with VNNI.
//!
//! One file per encoding says how 256 numbers of two rows become eight vectors of unsigned codes and their scales
//! ([`Pair`]); [`rows`] multiplies such pairs as they come with few rows of activations, [`batch`] turns them in registers
//! for some, [`tile`] transposes eight of them into a tile of sixteen rows for many. Unsigned codes carry a bias, which is
//! taken back with the sum of the activation codes. Where bits are few, [`one`] multiplies one row of activations with codes as they lie in the file, or with packed [`points`] of grids. Where there
//! are matrix registers, [`amx`] multiplies tiles.

pub mod amx;
mod batch;
mod one;
mod rows;
mod tile;

mod bytes;
mod chunk;
pub mod fp16;
mod grid;
mod grouped;
mod i2_s;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod points;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod stq1_0;
mod strips;
mod tq2_0;
pub mod trellis;
mod two_bits;
pub mod vbmi;

use super::matmul::Blocks;
use std::arch::x86_64::*;

/// Every encoding with a file here.
pub static KERNELS: &[Blocks] = &[
    i2_s::BLOCKS,
    iq4_nl::BLOCKS,
    iq4_xs::BLOCKS,
    nvfp4::BLOCKS,
    q2_0::BLOCKS,
    q2_k::BLOCKS,
    q3_k::BLOCKS,
    q4_0::BLOCKS,
    q4_1::BLOCKS,
    q4_k::BLOCKS,
    q5_0::BLOCKS,
    q5_1::BLOCKS,
    q5_k::BLOCKS,
    q6_k::BLOCKS,
    q8_0::BLOCKS,
    q8_1::BLOCKS,
    q8_k::BLOCKS,
    tq2_0::BLOCKS,
];

/// Those that need permutations of bytes.
pub static VBMI_KERNELS: &[Blocks] = &[
    iq1_m::BLOCKS,
    iq1_s::BLOCKS,
    iq2_s::BLOCKS,
    iq2_xs::BLOCKS,
    iq2_xxs::BLOCKS,
    iq3_s::BLOCKS,
    iq3_xxs::BLOCKS,
    mxfp4::BLOCKS,
    i2_s::VBMI_BLOCKS,
    q1_0::BLOCKS,
    q2_k::VBMI_BLOCKS,
    stq1_0::BLOCKS,
    tq2_0::VBMI_BLOCKS,
    two_bits::Q2_0_BLOCKS,
    two_bits::PQ2_0_BLOCKS,
];

pub use chunk::{COARSE, FINE};
pub use grouped::{PLAIN as GROUPED, SPREAD as VBMI_GROUPED};
pub use strips::KERNELS as STRIPS;

/// Rows of activations from which on codes are turned into tiles.
const BATCH: usize = 4;

/// Rows of activations from which on it pays to have a whole tile.
pub const MANY: usize = super::activations::PANELS_FROM;

/// 256 numbers of two rows, `a` and `b`.
///
/// `low[i]` holds the first 16 codes of groups `2i` and `2i + 1` of `a`, then the same of `b`; `high[i]` their last 16.
/// Scales and offsets are in [`super::activations::COARSE_ORDER`], eight of `a` and then eight of `b`; groups of 16 need
/// two such vectors, in [`super::activations::FINE_ORDER`].
#[derive(Clone, Copy)]
struct Pair {
    low: [__m512i; 4],
    high: [__m512i; 4],
    scale: [__m512; 2],
    offset: [__m512; 2],
}

impl Pair {
    /// Nothing.
    const ZERO: Self = {
        // SAFETY: zeros are a value of every vector.
        unsafe { std::mem::zeroed() }
    };
}

/// The entry points of an encoding: what a file here adds to its `load`; and, where its bytes can be transposed before they
/// are unpacked, the [layout](tile::HALVES) of its raw vectors, and the functions that [`tile::fill_raw`] takes.
macro_rules! blocks {
    ($name:literal, $format:ty, $load:expr $(, $layout:ident, $raw:expr, $codes:expr, $scales:expr)?) => {
        $crate::kernels::avx512::blocks!(
            BLOCKS: $name, $format, $load $(, $layout, $raw, $codes, $scales)?
        );
    };
    (
        $blocks:ident:
        $name:literal, $format:ty, $load:expr $(, $layout:ident, $raw:expr, $codes:expr, $scales:expr)?
    ) => {
        /// The kernels of this encoding.
        pub const $blocks: $crate::kernels::matmul::Blocks =
            $crate::kernels::avx512::blocks_of!($name, $format, $load $(, $layout, $raw, $codes, $scales)?);
    };
}
/// What is done with a chunk of sixteen rows, by way of pairs or of raw vectors.
macro_rules! on_chunk {
    ($pairs:path, $raw_ones:path, ($($arg:expr),*); $format:ty, $load:expr) => {{
        use $crate::kernels::avx512::whole;
        use $pairs as by_pairs;
        by_pairs::<$format>($($arg,)* |a, b| $load(whole(a), whole(b)))
    }};
    (
        $pairs:path, $raw_ones:path, ($($arg:expr),*);
        $format:ty, $load:expr, $layout:ident, $raw:expr, $codes:expr, $scales:expr
    ) => {{
        use $crate::kernels::avx512::tile;
        use $raw_ones as by_raw_ones;
        by_raw_ones::<$format, { tile::$layout }>($($arg,)* |a, b, i| $raw(a, b, i), |z| $codes(z), |a, b| $scales(a, b))
    }};
}
/// What some rows of activations are multiplied with.
macro_rules! batch_of {
    ($job:expr, $room:expr, $format:ty, $load:expr) => {
        batch::product::<$format>($job, $room, |a, b| batch::turned::<$format>($load(whole(a), whole(b))))
    };
    ($job:expr, $room:expr, $format:ty, $load:expr, HALVES, $raw:expr, $codes:expr, $scales:expr) => {
        batch::product::<$format>($job, $room, |a, b| {
            batch::turned_halves(|i| $raw(a, b, i), |z| $codes(z), $scales(a, b))
        })
    };
    ($job:expr, $room:expr, $format:ty, $load:expr, $layout:ident, $raw:expr, $codes:expr, $scales:expr) => {
        $crate::kernels::avx512::batch_of!($job, $room, $format, $load)
    };
}
macro_rules! blocks_of {
    ($name:expr, $format:ty, $load:expr $(, $layout:ident, $raw:expr, $codes:expr, $scales:expr)?) => {{
        use $crate::kernels::avx512::whole;
        use $crate::kernels::matmul::{Blocks, Job, Quad, Tile, TileMut};
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn few(job: &Job<'_>, room: &mut [Quad]) {
            use $crate::kernels::avx512::{BATCH, batch, rows};
            if job.x.count() < BATCH {
                rows::product::<$format>(job, |a, b| $load(whole(a), whole(b)));
            } else {
                $crate::kernels::avx512::batch_of!(job, room, $format, $load $(, $layout, $raw, $codes, $scales)?);
            }
        }
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn fill(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
            use $crate::kernels::avx512::{on_chunk, tile};
            tile::fill::<$format>(job, first, tile, |rows, tile, at| {
                on_chunk!(
                    tile::fill_pairs, tile::fill_raw, (rows, tile, at);
                    $format, $load $(, $layout, $raw, $codes, $scales)?
                );
            });
            if $crate::kernels::avx512::amx::takes::<$format>(job) {
                $crate::kernels::avx512::amx::centre::<$format>(tile, job.row_len);
            }
        }
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn tile(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
            if $crate::kernels::avx512::amx::takes::<$format>(job) {
                $crate::kernels::avx512::amx::product::<$format>(job, first, tile);
            } else {
                $crate::kernels::avx512::tile::product::<$format>(job, first, tile);
            }
        }
        Blocks { name: $name, few, fill, tile }
    }};
}
/// The same kernels, with one of its own for one row of activations.
macro_rules! with_one {
    ($blocks:expr, $packed:ty) => {{
        use $crate::kernels::matmul::{Job, Quad};
        #[target_feature(
            enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni"
        )]
        fn few(job: &Job<'_>, room: &mut [Quad]) {
            if job.x.count() == 1 {
                $crate::kernels::avx512::one::product::<$packed>(job, room);
            } else {
                // SAFETY: this function has been entered, so the processor has what it needs, which is more.
                unsafe { ($blocks.few)(job, room) }
            }
        }
        Blocks { few, ..$blocks }
    }};
}
use {batch_of, blocks, blocks_of, on_chunk, with_one};

/// Codes that are what they were transposed as.
#[inline(always)]
fn same(codes: __m512i) -> __m512i {
    codes
}

/// The bytes of a chunk as an array: what is read of it then needs no checks, and is small enough to be inlined.
#[inline(always)]
fn whole<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a chunk has the bytes of its format")
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load(bytes: &[u8], at: usize) -> __m512i {
    let bytes = &bytes[at..at + 64];
    // SAFETY: the slice covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load_floats(x: &[f32; 16]) -> __m512 {
    // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn store_floats(x: __m512, to: &mut [f32; 16]) {
    // SAFETY: the reference covers the 64 bytes written, and `storeu` asks for no alignment.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn half(bytes: &[u8], at: usize) -> __m256i {
    let bytes = &bytes[at..at + 32];
    // SAFETY: the slice covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// A table of word indices for [`_mm512_permutex2var_epi16`].
const fn words(table: [u16; 32]) -> Words {
    Words(table)
}

/// See [`words`].
#[repr(C, align(64))]
struct Words([u16; 32]);

impl Words {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn get(&self) -> __m512i {
        // SAFETY: the reference covers the 64 bytes read.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// Word indices that pick from two sources `a` and `b` the 16 bytes at `first` and at `second` of each.
const fn two_halves(first: usize, second: usize) -> Words {
    let mut table = [0; 32];
    let mut i = 0;
    while i < 8 {
        table[i] = (first / 2 + i) as u16;
        table[8 + i] = (second / 2 + i) as u16;
        table[16 + i] = (32 + first / 2 + i) as u16;
        table[24 + i] = (32 + second / 2 + i) as u16;
        i += 1;
    }
    words(table)
}

/// The 512-bit vector of two 256-bit ones.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// The low nibbles. (Written out: `map` would not be compiled for this instruction set.)
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn low4(p: [__m512i; 4]) -> [__m512i; 4] {
    let mask = _mm512_set1_epi8(15);
    [
        _mm512_and_si512(p[0], mask),
        _mm512_and_si512(p[1], mask),
        _mm512_and_si512(p[2], mask),
        _mm512_and_si512(p[3], mask),
    ]
}

/// The high nibbles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn high4(p: [__m512i; 4]) -> [__m512i; 4] {
    low4([
        _mm512_srli_epi16::<4>(p[0]),
        _mm512_srli_epi16::<4>(p[1]),
        _mm512_srli_epi16::<4>(p[2]),
        _mm512_srli_epi16::<4>(p[3]),
    ])
}

/// The eight half-precision numbers that `pick` names in two vectors, of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn picked_halves(pick: &Words, a: [__m512i; 2], b: [__m512i; 2]) -> __m512 {
    let pick = pick.get();
    let a = _mm512_castsi512_si128(_mm512_permutex2var_epi16(a[0], pick, a[1]));
    let b = _mm512_castsi512_si128(_mm512_permutex2var_epi16(b[0], pick, b[1]));
    _mm512_cvtph_ps(_mm256_set_m128i(b, a))
}

/// The half-precision numbers at `at` in eight blocks of `BYTES` of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn halves_at<const BYTES: usize>(a: &[u8], b: &[u8], at: usize) -> __m512 {
    let bits = |row: &[u8]| {
        let d = |group: usize| i16::from_le_bytes([row[BYTES * group + at], row[BYTES * group + at + 1]]);
        _mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7))
    };
    _mm512_cvtph_ps(_mm256_set_m128i(bits(b), bits(a)))
}
