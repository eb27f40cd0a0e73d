//! `q2_k` for AVX-512: planes of two bits under four-bit scales and minimums for every 16 numbers.

use super::bytes::{Bytes, empty, fine_order, heads, sixteen, unsigned};
use super::one::{self, PAIRS, PLANES, Packed, Pairs, Picks, Sums, cut, fold, picks};
use super::*;
use crate::kernels::activations::COARSE_ORDER;
use crate::kernels::formats::Q2K;
use crate::kernels::matmul::Quad;

blocks!("q2_k", Q2K, load_pair);

/// The kernels of this encoding on processors that permute bytes.
pub const VBMI_BLOCKS: Blocks = with_one!(BLOCKS, Q2K);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 84], b: &[u8; 84]) -> Pair {
    let (d, dmin) = (heads(a, b, 80), heads(a, b, 82));
    let dmin = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0));
    let nibble = _mm_set1_epi8(15);
    let both = fine_order(sixteen(a, 0), sixteen(b, 0));
    let mut pair = empty([_mm512_setzero_ps(); 2]);
    for part in 0..2 {
        pair.scale[part] = _mm512_mul_ps(d, unsigned(_mm_and_si128(both[part], nibble)));
        let min = _mm_and_si128(_mm_srli_epi16::<4>(both[part]), nibble);
        pair.offset[part] = _mm512_mul_ps(dmin, unsigned(min));
    }
    tq2_0::planes(&a[16..80], &b[16..80], &mut pair);
    pair
}

/// The bytes of the groups of half of a chunk of two rows, each in 32 bits, in the order of [`COARSE_ORDER`].
const fn groups(half: usize) -> Bytes {
    let mut table = [0; 64];
    let mut lane = 0;
    while lane < 16 {
        table[4 * lane] = (16 * (lane / 8) + 8 * half + COARSE_ORDER[lane % 8]) as u8;
        lane += 1;
    }
    Bytes(table)
}

/// A plane of 32 bytes is two groups of 16; four planes are half of a chunk.
impl Packed for Q2K {
    const BYTES: usize = 84;
    const READ: usize = 84;
    const FINE: bool = true;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const PICKS: &'static Picks = &const {
        let mut numbers = [[0; 32]; 8];
        let mut i = 0;
        while i < 256 {
            numbers[i / 32][i % 32] = i;
            i += 1;
        }
        picks(numbers)
    };
    const GROUPS: [usize; 8] = COARSE_ORDER;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        let mut sums = [Sums::ZERO; PAIRS];
        for (sums, [a, b]) in sums.iter_mut().zip(rows) {
            *sums = sums_of(a, b, x);
        }
        sums
    }
}

/// Those of one pair. (Both pairs in step need more registers than there are.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn sums_of(a: &[u8], b: &[u8], x: &[Quad]) -> Sums {
    static LEVELS: [Bytes; 2] = [groups(0), groups(1)];
    let bits = |row: &[u8]| i64::from(u32::from_le_bytes([row[80], row[81], row[82], row[83]]));
    // Of `a` the factors of scales and of minimums, then of `b`.
    let factors = _mm_cvtph_ps(_mm_cvtsi64_si128(bits(a) | bits(b) << 32));
    let factors = _mm512_castps128_ps512(factors);
    let b_from_8 = |first| _mm512_mask_set1_epi32(_mm512_set1_epi32(first), 0xFF00, first + 2);
    let d = _mm512_permutexvar_ps(b_from_8(0), factors);
    let dmin = _mm512_xor_ps(_mm512_permutexvar_ps(b_from_8(1), factors), _mm512_set1_ps(-0.0));
    let levels = _mm512_castsi256_si512(_mm256_set_m128i(sixteen(b, 0), sixteen(a, 0)));
    let zero = _mm512_setzero_si512();
    let mut sums = Sums::ZERO;
    for part in 0..2 {
        let packed = join(half(a, 16 + 32 * part), half(b, 16 + 32 * part));
        let mut dots = [zero; 4];
        for (v, cuts) in PLANES.iter().enumerate() {
            dots[v] = _mm512_dpbusd_epi32(zero, cut(packed, cuts), one::codes(x, 4 * part + v));
        }
        sums.dots[part] = fold(fold(dots[0], dots[1]), fold(dots[2], dots[3]));
        let level = _mm512_maskz_permutexvar_epi8(0x1111_1111_1111_1111, LEVELS[part].get(), levels);
        let scale = _mm512_cvtepi32_ps(_mm512_and_si512(level, _mm512_set1_epi32(15)));
        sums.scale[part] = _mm512_mul_ps(d, scale);
        sums.offset[part] = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(level)));
    }
    sums
}
