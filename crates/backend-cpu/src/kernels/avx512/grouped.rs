//! Integers in groups for AVX-512: `affineB_G_T` and `zeroB_G_T`, one mechanism for all widths.
//!
//! A chunk is `256 / G` blocks of a head (scale and second number) and, for each 32 numbers, planes of four, two and one
//! bits. Two groups of a row are at most 64 bytes, so each plane of two groups of two rows is one permutation of two
//! loads; nibbles are then as in `q4_0`, and narrower planes are spread by a shift that picks eight bits out of 64 for
//! each code, placed so that the wanted ones come to lie where the code has them. Eight bits are read as they are.

use super::bytes::{Bytes, empty, select};
use super::one::{
    self, PAIRS, PLANES as TWO_BITS, Packed, Pairs, Picks, Sums, cut, cuts, fold, gather, picks,
};
use super::vbmi::multishift;
use super::*;
use crate::kernels::activations::COARSE_ORDER;
use crate::kernels::format::Format;
use crate::kernels::matmul::Quad;

/// Codes of `BITS` bits in groups of `GROUP`, in whose heads two numbers lie; with `ZERO`, the second is taken from the
/// code rather than added to the product.
struct Grouped<const BITS: usize, const GROUP: usize, const ZERO: bool>;

/// Bytes of scale and second number.
const HEAD: usize = 4;

/// What is taken from a code of a group to make it signed, as in the `quant` crate.
const fn middle(bits: usize, zero: bool) -> i32 {
    if zero || bits == 8 { 1 << (bits - 1) } else { 0 }
}

/// Bytes of a block.
const fn block_bytes(bits: usize, group: usize) -> usize {
    HEAD + group / 8 * bits
}

const fn chunk_bytes(bits: usize, group: usize) -> usize {
    256 / group * block_bytes(bits, group)
}

/// Where the planes of a group of 32 of a chunk begin.
const fn planes_at(bits: usize, group: usize, n: usize) -> usize {
    32 * n / group * block_bytes(bits, group) + HEAD + 32 * n % group / 32 * (4 * bits)
}

/// Where 64 bytes with groups `2 * i` and `2 * i + 1` of 32 begin.
const fn two_at(bits: usize, group: usize, i: usize) -> usize {
    let (at, last) = (planes_at(bits, group, 2 * i), chunk_bytes(bits, group) - 64);
    if at < last { at } else { last }
}

impl<const BITS: usize, const GROUP: usize, const ZERO: bool> Format for Grouped<BITS, GROUP, ZERO> {
    const CHUNK_BYTES: usize = chunk_bytes(BITS, GROUP);
    const OFFSET: bool = true;
    const BIAS: i32 = middle(BITS, ZERO);
    const TOP: i32 = (1 << BITS) - 1;
}

/// Word indices that pick, from two rows loaded at [`two_at`], `len` bytes at `skip` of the planes of two groups: for
/// each group sixteen bytes, filled by repeating what there is.
const fn plane(bits: usize, group: usize, i: usize, skip: usize, len: usize) -> Words {
    let mut table = [0; 32];
    let mut place = 0;
    while place < 32 {
        let at = planes_at(bits, group, 2 * i + place / 8 % 2) - two_at(bits, group, i) + skip;
        table[place] = (place / 16 * 32 + at / 2 + place % 8 % (len / 2)) as u16;
        place += 1;
    }
    words(table)
}

/// Planes of all pairs of groups.
const fn planes(bits: usize, group: usize, skip: usize, len: usize) -> [Words; 4] {
    [
        plane(bits, group, 0, skip, len),
        plane(bits, group, 1, skip, len),
        plane(bits, group, 2, skip, len),
        plane(bits, group, 3, skip, len),
    ]
}

/// Of the 64 bits that hold a group's codes of `width` bits, from which on eight are taken for each of its first, or
/// last, sixteen numbers so that the code comes to lie at bit `to`.
const fn places(width: usize, to: usize, half: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = ((64 + width * (16 * half + i % 16) - to) % 64) as u8;
        i += 1;
    }
    Bytes(table)
}

/// The first, and the last, sixteen codes of both groups of pair `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn codes<const BITS: usize, const GROUP: usize>(a: &[u8], b: &[u8], i: usize) -> [__m512i; 2] {
    let at = two_at(BITS, GROUP, i);
    let (a, b) = (load(a, at), load(b, at));
    let pick = |table: &'static [Words; 4]| _mm512_permutex2var_epi16(a, table[i].get(), b);
    let has = |width| BITS & width != 0;
    let (mut low, mut high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    let mut known = 0;
    if has(4) {
        low = pick(const { &planes(BITS, GROUP, 0, 16) });
        high = _mm512_srli_epi16::<4>(low);
        known = 4;
    }
    for width in [2, 1] {
        if !has(width) {
            continue;
        }
        let (from, first, last) = if width == 2 {
            (
                pick(const { &planes(BITS, GROUP, 4 * (BITS & 4), 8) }),
                const { &places(2, BITS & 4, 0) },
                const { &places(2, BITS & 4, 1) },
            )
        } else {
            (
                pick(const { &planes(BITS, GROUP, 4 * (BITS & 6), 4) }),
                const { &places(1, BITS & 6, 0) },
                const { &places(1, BITS & 6, 1) },
            )
        };
        let below = _mm512_set1_epi8((1 << known) - 1);
        low = select(below, low, multishift(first.get(), from));
        high = select(below, high, multishift(last.get(), from));
        known += width;
    }
    let mask = _mm512_set1_epi8(((1u16 << BITS) - 1) as i8);
    [_mm512_and_si512(low, mask), _mm512_and_si512(high, mask)]
}

/// Which block, as a word of 32 bits from the two places where [`heads_of`] loads, has the head of each group.
const fn head_words(bits: usize, group: usize) -> [i32; 16] {
    let mut table = [0; 16];
    let mut place = 0;
    while place < 8 {
        let block = 32 * COARSE_ORDER[place] / group;
        let (half, from) = if block < 128 / group { (0, 0) } else { (1, second_heads(bits, group)) };
        table[place] = (16 * half + (block * block_bytes(bits, group) - from) / 4) as i32;
        place += 1;
    }
    table
}

/// Where 64 bytes with the heads of the second half of a chunk begin.
const fn second_heads(bits: usize, group: usize) -> usize {
    let (at, last) = (chunk_bytes(bits, group) / 2, chunk_bytes(bits, group) - 64);
    if at < last { at } else { last }
}

/// Whether the heads of half a chunk lie in 64 bytes.
const fn heads_are_near(bits: usize, group: usize) -> bool {
    (128 / group - 1) * block_bytes(bits, group) + HEAD <= 64
}

/// The heads of the blocks of two rows, for each group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn heads_of<const BITS: usize, const GROUP: usize>(a: &[u8], b: &[u8]) -> __m512i {
    if const { heads_are_near(BITS, GROUP) } {
        let second = second_heads(BITS, GROUP);
        let table = const { &head_words(BITS, GROUP) };
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        let pick = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
        let row =
            |row| _mm512_castsi512_si256(_mm512_permutex2var_epi32(load(row, 0), pick, load(row, second)));
        return join(row(a), row(b));
    }
    let row = |row: &[u8]| {
        let head = |place: usize| {
            let at = 32 * COARSE_ORDER[place] / GROUP * block_bytes(BITS, GROUP);
            i32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
        };
        _mm256_setr_epi32(head(0), head(1), head(2), head(3), head(4), head(5), head(6), head(7))
    };
    join(row(a), row(b))
}

/// Scales and offsets of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales<const BITS: usize, const GROUP: usize, const ZERO: bool, const BRAIN: bool>(
    a: &[u8],
    b: &[u8],
) -> [__m512; 2] {
    let heads = heads_of::<BITS, GROUP>(a, b);
    let (scale, second) = if BRAIN {
        (_mm512_slli_epi32::<16>(heads), _mm512_and_si512(heads, _mm512_set1_epi32(0xFFFF_0000u32 as i32)))
    } else {
        let number = |half| _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(half)));
        (number(heads), number(_mm512_srli_epi32::<16>(heads)))
    };
    let (scale, second) = (_mm512_castsi512_ps(scale), _mm512_castsi512_ps(second));
    let middle = _mm512_set1_ps(middle(BITS, ZERO) as f32);
    let offset = if ZERO {
        let offset = _mm512_mul_ps(_mm512_sub_ps(middle, second), scale);
        // A group without an offset: also where the scale is infinite.
        let symmetric = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(middle, second);
        _mm512_mask_mov_ps(offset, symmetric, _mm512_set1_ps(-0.0))
    } else if BITS == 8 {
        _mm512_add_ps(second, _mm512_mul_ps(scale, middle))
    } else {
        second
    };
    [scale, offset]
}

/// The codes of group `n` of eight bits of both rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn group_of_bytes<const GROUP: usize>(a: &[u8], b: &[u8], n: usize) -> __m512i {
    let at = planes_at(8, GROUP, n);
    join(half(a, at), half(b, at))
}

/// The nibbles of groups `2 * i` and `2 * i + 1` of both rows, each still with its other half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn nibbles<const GROUP: usize>(a: &[u8], b: &[u8], i: usize) -> __m512i {
    if GROUP > 32 {
        let at = planes_at(4, GROUP, 2 * i);
        return join(half(a, at), half(b, at));
    }
    let at = two_at(4, GROUP, i);
    _mm512_permutex2var_epi16(load(a, at), const { &planes(4, GROUP, 0, 16) }[i].get(), load(b, at))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair<
    const BITS: usize,
    const GROUP: usize,
    const ZERO: bool,
    const BRAIN: bool,
    const BYTES: usize,
>(
    a: &[u8; BYTES],
    b: &[u8; BYTES],
) -> Pair {
    let [scale, offset] = scales::<BITS, GROUP, ZERO, BRAIN>(a, b);
    let mut pair = Pair { offset: [offset; 2], ..empty([scale; 2]) };
    for i in 0..4 {
        [pair.low[i], pair.high[i]] = if BITS == 8 {
            let even = group_of_bytes::<GROUP>(a, b, 2 * i);
            let odd = group_of_bytes::<GROUP>(a, b, 2 * i + 1);
            let first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
            let last = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
            [_mm512_permutex2var_epi64(even, first, odd), _mm512_permutex2var_epi64(even, last, odd)]
        } else if BITS == 4 {
            let (packed, mask) = (nibbles::<GROUP>(a, b, i), _mm512_set1_epi8(15));
            [_mm512_and_si512(packed, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask)]
        } else {
            codes::<BITS, GROUP>(a, b, i)
        };
    }
    pair
}

/// Codes of two or three bits with one row of activations: [`Grouped`], with `BRAIN` under heads of bf16.
struct Few<const BITS: usize, const GROUP: usize, const ZERO: bool, const BRAIN: bool>;

/// Part `k` of 64 bits of vector `4 * n + v` holds numbers `v`, `4 + v`, `8 + v`, ... of this group of the chunk.
const fn group_of(n: usize, k: usize) -> usize {
    4 * n + [0, 2, 1, 3][k]
}

/// The plane of two bits of four groups, or, with `skip`, of one bit, which is half as long: it is there twice then.
const fn four_planes(bits: usize, group: usize, n: usize, skip: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        let at = planes_at(bits, group, group_of(n, i / 8 % 4)) - n * second_heads(bits, group);
        table[i] = (at + skip + i % (if skip > 0 { 4 } else { 8 })) as u8;
        i += 1;
    }
    Bytes(table)
}

/// Eight bits from every fourth bit on.
static FOURS: Bytes = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (4 * (i % 8)) as u8;
        i += 1;
    }
    Bytes(table)
};

/// Bit `v` of each byte, as the bit above two.
static ABOVE_TWO: [Bytes; 4] = [above_two(0), above_two(1), above_two(2), above_two(3)];

const fn above_two(from: usize) -> Bytes {
    let mut table = cuts(1, [from; 8]).0;
    let mut i = 0;
    while i < 64 {
        // The row of a matrix that makes bit 2 instead of bit 0.
        (table[i + 5], table[i + 7]) = (table[i + 7], 0);
        i += 8;
    }
    Bytes(table)
}

impl<const BITS: usize, const GROUP: usize, const ZERO: bool, const BRAIN: bool> Packed
    for Few<BITS, GROUP, ZERO, BRAIN>
{
    const BYTES: usize = chunk_bytes(BITS, GROUP);
    const READ: usize = chunk_bytes(BITS, GROUP);
    const OFFSET: bool = true;
    const BIAS: i32 = middle(BITS, ZERO);
    const PICKS: &'static Picks = &{
        let mut numbers = [[0; 32]; 8];
        let mut i = 0;
        while i < 256 {
            let (n, v, k, j) = (i / 128, i / 32 % 4, i / 8 % 4, i % 8);
            numbers[i / 32][i % 32] = 32 * group_of(n, k) + 4 * j + v;
            i += 1;
        }
        picks(numbers)
    };
    const GROUPS: [usize; 8] = COARSE_ORDER;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        let two = const { &[four_planes(BITS, GROUP, 0, 0), four_planes(BITS, GROUP, 1, 0)] };
        let one = const { &[four_planes(BITS, GROUP, 0, 8), four_planes(BITS, GROUP, 1, 8)] };
        let mut dots = [[_mm512_setzero_si512(); PAIRS]; 2];
        for (n, dots) in dots.iter_mut().enumerate() {
            let (mut twos, mut ones) = ([_mm512_setzero_si512(); PAIRS], [_mm512_setzero_si512(); PAIRS]);
            for (p, [a, b]) in rows.iter().enumerate() {
                let at = n * const { second_heads(BITS, GROUP) };
                let (a, b) = (load(a, at), load(b, at));
                twos[p] = gather(a, b, &two[n]);
                if BITS == 3 {
                    ones[p] = multishift(FOURS.get(), gather(a, b, &one[n]));
                }
            }
            for v in 0..4 {
                for p in 0..PAIRS {
                    let mut codes = cut(twos[p], &TWO_BITS[v]);
                    if BITS == 3 {
                        codes = _mm512_or_si512(codes, cut(ones[p], &ABOVE_TWO[v]));
                    }
                    dots[p] = _mm512_dpbusd_epi32(dots[p], codes, one::codes(x, 4 * n + v));
                }
                *dots = one::in_step(*dots);
            }
        }
        let mut sums = [Sums::ZERO; PAIRS];
        for (p, [a, b]) in rows.iter().enumerate() {
            let [scale, offset] = scales::<BITS, GROUP, ZERO, BRAIN>(a, b);
            sums[p] = Sums::coarse(fold(dots[0][p], dots[1][p]), scale);
            sums[p].offset[0] = offset;
        }
        sums
    }
}

/// The kernels of all groups of one width, family and type of numbers.
macro_rules! widths {
    ($bits:literal, $family:literal, $zero:literal, $type:literal, $brain:literal $(, $how:ident $(, $raw:ident)?)?) => {
        [
            widths!(@ $bits, 32, $family, $zero, $type, $brain $(, $how $(, $raw)?)?),
            widths!(@ $bits, 64, $family, $zero, $type, $brain $(, $how $(, $raw)?)?),
            widths!(@ $bits, 128, $family, $zero, $type, $brain $(, $how $(, $raw)?)?),
        ]
    };
    (@ $bits:literal, $group:literal, $family:literal, $zero:literal, $type:literal, $brain:literal, FEW) => {
        with_one!(
            widths!(@ $bits, $group, $family, $zero, $type, $brain),
            Few<$bits, $group, $zero, $brain>
        )
    };
    (@ $bits:literal, $group:literal, $family:literal, $zero:literal, $type:literal, $brain:literal) => {
        blocks_of!(
            concat!($family, $bits, "_", $group, "_", $type),
            Grouped<$bits, $group, $zero>,
            load_pair::<$bits, $group, $zero, $brain, { chunk_bytes($bits, $group) }>
        )
    };
    (
        @ $bits:literal, $group:literal, $family:literal, $zero:literal, $type:literal, $brain:literal,
        $layout:ident, $raw:ident
    ) => {
        blocks_of!(
            concat!($family, $bits, "_", $group, "_", $type),
            Grouped<$bits, $group, $zero>,
            load_pair::<$bits, $group, $zero, $brain, { chunk_bytes($bits, $group) }>,
            $layout,
            $raw::<$group>,
            same,
            scales::<$bits, $group, $zero, $brain>
        )
    };
}

static WHOLE: [[Blocks; 3]; 7] = [
    widths!(4, "affine", false, "f16", false, HALVES, nibbles),
    widths!(4, "affine", false, "bf16", true, HALVES, nibbles),
    widths!(4, "zero", true, "f16", false, HALVES, nibbles),
    widths!(4, "zero", true, "bf16", true, HALVES, nibbles),
    widths!(8, "affine", false, "f16", false, BYTES, group_of_bytes),
    widths!(8, "affine", false, "bf16", true, BYTES, group_of_bytes),
    widths!(8, "zero", true, "f16", false, BYTES, group_of_bytes),
];

static PLANES: [[Blocks; 3]; 12] = [
    widths!(2, "affine", false, "f16", false, FEW),
    widths!(2, "affine", false, "bf16", true, FEW),
    widths!(2, "zero", true, "f16", false, FEW),
    widths!(3, "affine", false, "f16", false, FEW),
    widths!(3, "affine", false, "bf16", true, FEW),
    widths!(3, "zero", true, "f16", false, FEW),
    widths!(5, "affine", false, "f16", false),
    widths!(5, "affine", false, "bf16", true),
    widths!(5, "zero", true, "f16", false),
    widths!(6, "affine", false, "f16", false),
    widths!(6, "affine", false, "bf16", true),
    widths!(6, "zero", true, "f16", false),
];

/// Those whose codes are whole nibbles or bytes.
pub static PLAIN: &[Blocks] = WHOLE.as_flattened();

/// Those whose codes are put together of planes, which needs permutations of bytes.
pub static SPREAD: &[Blocks] = PLANES.as_flattened();
