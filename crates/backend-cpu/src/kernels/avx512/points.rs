//! One row of activations with the encodings of grids: points stay packed, and activations lie as they need it.
//!
//! A byte of a packed vector holds bits of two or four numbers of one point. One affine map of bits makes one of them into a
//! code, whatever the levels of the grid (three or, with a bit more, eight levels are affine in their bits), so a packed
//! vector becomes as many vectors of codes as a byte has numbers, with no shift, mask or look-up. The four bytes of each 32
//! bits belong to one group, so a group is summed up in its place. Signs are given to the activations.

use super::bytes::{Bytes, Dwords, sixteen};
use super::one::{self, PAIRS, Packed, Picks, Sums, picks};
use crate::kernels::matmul::Quad;
use std::arch::x86_64::*;

/// What becomes of packed points.
pub trait Maps: Packed {
    /// Where numbers lie.
    const ORDER: Order;
    /// Packed vectors of 256 numbers of two rows.
    const VECTORS: usize;
    /// The maps of the eight vectors of codes ([`map`]).
    const MAPS: [u64; 8];
    /// Whether signs are apart.
    const SIGNS: bool;
}

/// Which number of a chunk each byte of the eight vectors of codes is. Groups are in their order ([`IN_ORDER`]): those of 16
/// in the first half of a chunk for the first four vectors, those of 32 for all eight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Groups of 32, whose four bytes are four times eight numbers.
    Eights,
    /// Groups of 32, whose four bytes are fours: of the first 16 numbers for the first four vectors.
    Fours,
    /// Groups of 16, whose four bytes are fours.
    Fine,
}

impl Order {
    /// The number of a chunk for byte `byte` of group `group` in vector `i`.
    const fn number(self, i: usize, group: usize, byte: usize) -> usize {
        match self {
            Self::Eights => 32 * group + 8 * byte + i,
            Self::Fours => 32 * group + 16 * (i / 4) + 4 * byte + i % 4,
            Self::Fine => 128 * (i / 4) + 16 * group + 4 * byte + i % 4,
        }
    }

    /// The activations of each vector.
    pub const fn picks(self) -> Picks {
        let mut numbers = [[0; 32]; 8];
        let mut at = 0;
        while at < 256 {
            numbers[at / 32][at % 32] = self.number(at / 32, at % 32 / 4, at % 4);
            at += 1;
        }
        picks(numbers)
    }

    /// The bits of a pair of bytes that say the signs of vector `i`.
    const fn signs(self, i: usize) -> i16 {
        match self {
            Self::Eights => (1 << i | (1 << i) << 8) as u16 as i16,
            Self::Fours | Self::Fine => (1 << (i % 4) | (0x10 << (i % 4)) << 8) as u16 as i16,
        }
    }
}

/// The group of each lane.
pub const IN_ORDER: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The map of bits that adds (without carry) `columns[i]` for each bit `i` that is set.
pub const fn map(columns: [u8; 8]) -> u64 {
    let (mut map, mut bit) = (0, 0);
    while bit < 64 {
        // Row `r`, which makes bit `r`, is byte `7 - r`.
        map |= ((columns[bit % 8] >> (bit / 8) & 1) as u64) << (8 * (7 - bit / 8) + bit % 8);
        bit += 1;
    }
    map
}

/// The maps of numbers of two bits, four to a byte, whose levels have these codes.
pub const fn maps_of_two_bits(codes: [u8; 3]) -> [u64; 8] {
    let (mut maps, mut i) = ([0; 8], 0);
    while i < 8 {
        let mut columns = [0; 8];
        columns[i % 4 * 2] = codes[0] ^ codes[1];
        columns[i % 4 * 2 + 1] = codes[0] ^ codes[2];
        maps[i] = map(columns);
        i += 1;
    }
    maps
}

/// 256 numbers of two rows: of 512 bits, the first half is of the one and the second of the other.
#[derive(Clone, Copy)]
pub struct Points {
    /// Packed points.
    pub packed: [__m512i; 4],
    /// Their signs, a bit for each number; where there are none apart, what is added to codes without carry.
    pub signs: [__m512i; 4],
    /// The scales of groups of 32, or of the groups of 16 of each half.
    pub scale: [__m512; 2],
}

impl Points {
    /// Nothing.
    pub const ZERO: Self = {
        // SAFETY: zeros are a value of every vector.
        unsafe { std::mem::zeroed() }
    };
}

/// Sums up the points of pairs of rows; `FIRST` is the code of a number whose bits are all 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub fn sums<M: Maps, const FIRST: i32>(points: &[Points; PAIRS], x: &[Quad]) -> [Sums; PAIRS] {
    let mut dots = [[_mm512_setzero_si512(); PAIRS]; 2];
    for n in 0..8 {
        // Both halves by turns, so that no sum waits for the one before.
        let i = n % 2 * 4 + n / 2;
        let v = i / (8 / M::VECTORS);
        let map = _mm512_set1_epi64(M::MAPS[i] as i64);
        let signs = _mm512_set1_epi16(M::ORDER.signs(i));
        for p in 0..PAIRS {
            let mut codes = _mm512_gf2p8affine_epi64_epi8::<FIRST>(points[p].packed[v], map);
            let mut x = one::codes(x, i);
            if M::SIGNS {
                let negative = _mm512_test_epi8_mask(points[p].signs[v], signs);
                x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
            } else {
                codes = _mm512_xor_si512(codes, points[p].signs[v]);
            }
            dots[n % 2][p] = _mm512_dpbusd_epi32(dots[n % 2][p], codes, x);
        }
        dots[n % 2] = one::in_step(dots[n % 2]);
    }
    let mut sums = [Sums::ZERO; PAIRS];
    for p in 0..PAIRS {
        sums[p].scale = points[p].scale;
        sums[p].dots = if M::FINE {
            [dots[0][p], dots[1][p]]
        } else {
            [_mm512_add_epi32(dots[0][p], dots[1][p]), _mm512_setzero_si512()]
        };
    }
    sums
}

/// Picks the even bytes of two vectors, and the odd ones.
pub const fn even_and_odd() -> [Bytes; 2] {
    let (mut tables, mut i) = ([Bytes([0; 64]); 2], 0);
    while i < 128 {
        tables[i % 2].0[i / 2] = i as u8;
        i += 1;
    }
    tables
}

/// Sixteen numbers.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Numbers(pub [f32; 16]);

impl Numbers {
    /// Number `index % 16` for each of sixteen indices.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn pick(&self, index: __m512i) -> __m512 {
        // SAFETY: the reference covers the 64 bytes read.
        _mm512_permutexvar_ps(index, unsafe { _mm512_load_ps(self.0.as_ptr()) })
    }
}

/// `first + step * i`, over and over after `len`.
pub const fn numbers(first: f32, step: f32, len: usize) -> Numbers {
    let (mut numbers, mut i) = ([0.0; 16], 0);
    while i < 16 {
        numbers[i] = first + step * (i % len) as f32;
        i += 1;
    }
    Numbers(numbers)
}

/// `first + step * i`, over and over after eight.
pub const fn dwords(first: u32, step: u32) -> Dwords {
    let (mut dwords, mut i) = ([0; 16], 0);
    while i < 16 {
        dwords[i] = first + step * (i as u32 % 8);
        i += 1;
    }
    Dwords(dwords)
}

/// Four bytes of each of two rows, eight times each.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn eight_times(a: &[u8], b: &[u8], at: usize) -> __m512i {
    let four = |row: &[u8]| i32::from_le_bytes(*row[at..].first_chunk().expect("four bytes of a block"));
    _mm512_mask_set1_epi32(_mm512_set1_epi32(four(a)), 0xFF00, four(b))
}

/// Each of eight words of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn word_each(a: &[u8], b: &[u8], at: usize) -> __m512i {
    _mm512_cvtepu16_epi32(_mm256_set_m128i(sixteen(b, at), sixteen(a, at)))
}

/// A grid whose packed points are fetched from memory.
#[repr(C, align(64))]
pub struct Fetched<const N: usize> {
    /// So that a point can be had in the upper half of 32 bits, too.
    before: u16,
    points: [u16; N],
    after: u16,
}

impl<const N: usize> Fetched<N> {
    /// The table of a grid.
    pub const fn new(packed: &nibble_quant::grids::Packed) -> Self {
        let (mut points, mut i) = ([0; N], 0);
        while i < N {
            points[i] = packed.point(i);
            i += 1;
        }
        Self { before: 0, points, after: 0 }
    }

    /// For each 32 bits, the points of two indices.
    ///
    /// # Safety
    /// Indices must be below `N`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn pairs(&self, first: __m512i, second: __m512i) -> __m512i {
        debug_assert!(std::mem::offset_of!(Self, points) == 2 && size_of_val(&self.after) == 2);
        let table = (&raw const self.before).cast::<i32>();
        // SAFETY: the callers' indices are below `N`, so that the four bytes read lie inside the table: from one
        // point on, and up to one point.
        let [low, high] = unsafe {
            [
                _mm512_i32gather_epi32::<2>(first, table.byte_add(2)),
                _mm512_i32gather_epi32::<2>(second, table),
            ]
        };
        _mm512_mask_blend_epi16(0xAAAA_AAAA, low, high)
    }
}

/// Makes an encoding of grids a [`Packed`] one: its bytes for 256 numbers, whether scales belong to 16 numbers, the bias of codes, the code
/// of a number whose bits are all 0, and what loads the [`Points`] of two rows.
macro_rules! packed {
    (
        $format:ty, bytes: $bytes:literal, fine: $fine:literal, bias: $bias:literal, first: $first:literal,
        $load:expr
    ) => {
        impl $crate::kernels::avx512::one::Packed for $format {
            const BYTES: usize = $bytes;
            const READ: usize = $bytes;
            const FINE: bool = $fine;
            const BIAS: i32 = $bias;
            const PICKS: &'static $crate::kernels::avx512::one::Picks =
                &const { <Self as $crate::kernels::avx512::points::Maps>::ORDER.picks() };
            const GROUPS: [usize; 8] = $crate::kernels::avx512::points::IN_ORDER;

            #[inline]
            #[target_feature(
                enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni"
            )]
            unsafe fn sums(
                rows: &$crate::kernels::avx512::one::Pairs<'_>,
                x: &[$crate::kernels::matmul::Quad],
            ) -> [$crate::kernels::avx512::one::Sums; $crate::kernels::avx512::one::PAIRS] {
                use $crate::kernels::avx512::{one::PAIRS, points, whole};
                let mut all = [points::Points::ZERO; PAIRS];
                for (points, [a, b]) in all.iter_mut().zip(rows) {
                    *points = $load(whole(a), whole(b));
                }
                points::sums::<Self, $first>(&all, x)
            }
        }
    };
}
pub(super) use packed;
