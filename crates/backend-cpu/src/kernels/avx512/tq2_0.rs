//! `tq2_0` for AVX-512: planes of two bits under one scale.

use super::bytes::{Bytes, empty, heads, part};
use super::one::{self, Packed, Picks, Sums, cut, cuts, fold, picks};
use super::*;
use crate::kernels::activations::COARSE_ORDER;
use crate::kernels::formats::Tq2_0;
use crate::kernels::matmul::Quad;

blocks!("tq2_0", Tq2_0, load_pair);

/// The kernels of this encoding on processors that permute bytes.
pub const VBMI_BLOCKS: Blocks = with_one!(BLOCKS, Tq2_0);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 66], b: &[u8; 66]) -> Pair {
    let mut pair = empty([heads(a, b, 64); 2]);
    planes(&a[..64], &b[..64], &mut pair);
    pair
}

/// Planes of two bits: 32 bytes hold four groups of 32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn planes(a: &[u8], b: &[u8], pair: &mut Pair) {
    let (a, b) = (load(a, 0), load(b, 0));
    for n in 0..2 {
        let both = if n == 0 {
            _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b)
        } else {
            _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b)
        };
        planes_of(both, n, pair);
    }
}

/// Groups `4n` to `4n + 3` of two rows from 32 bytes of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn planes_of(both: __m512i, n: usize, pair: &mut Pair) {
    spread::<false>(both, n, pair);
}

/// The same; with `FALLING`, the first group lies in the highest bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn spread<const FALLING: bool>(both: __m512i, n: usize, pair: &mut Pair) {
    // Two bits further for the second of two groups.
    let two = 0x0002_0002_0002_0002;
    let mask = _mm512_set1_epi8(3);
    let (first, last) = (_mm512_permutex_epi64::<0x44>(both), _mm512_permutex_epi64::<0xEE>(both));
    for plane in 0..2 {
        let (even, odd) = (two * 2 * plane, two * (2 * plane + 1));
        let (even, odd) = if FALLING { (two * 3 - even, two * 3 - odd) } else { (even, odd) };
        let shift = _mm512_set4_epi64(odd, odd, even, even);
        let i = 2 * n + plane as usize;
        pair.low[i] = _mm512_and_si512(_mm512_srlv_epi16(first, shift), mask);
        pair.high[i] = _mm512_and_si512(_mm512_srlv_epi16(last, shift), mask);
    }
}

/// As the lines of activations lie: half of two groups in a vector.
pub const TWO_GROUPS: Picks = {
    let mut numbers = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        numbers[i / 32][i % 32] = 64 * (i / 64) + 32 * (i / 16 % 2) + 16 * (i / 32 % 2) + i % 16;
        i += 1;
    }
    picks(numbers)
};

/// The sixteen bytes at `at` of each of two rows, twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn twice(a: &[u8], b: &[u8], at: usize) -> __m512i {
    vbmi::insert(vbmi::four_times(part(a, at)), 0xFF00, part(b, at))
}

impl Packed for Tq2_0 {
    const BYTES: usize = 66;
    const READ: usize = 66;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &TWO_GROUPS;
    const GROUPS: [usize; 8] = COARSE_ORDER;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &[&[u8]], x: &[Quad], to: &mut [Sums]) {
        let (a, b) = (rows[0], rows[1]);
        static CUTS: [Bytes; 2] = [cuts(2, [0, 0, 2, 2, 0, 0, 2, 2]), cuts(2, [4, 4, 6, 6, 4, 4, 6, 6])];
        let mut dots = [_mm512_setzero_si512(); 4];
        for v in 0..4 {
            let (n, half) = (v / 2, v % 2);
            let packed = twice(a, b, 16 * v);
            for (plane, cuts) in CUTS.iter().enumerate() {
                let i = 2 * n + plane;
                dots[i] = _mm512_dpbusd_epi32(dots[i], cut(packed, cuts), one::codes(x, 2 * i + half));
            }
        }
        to[0] = Sums::coarse(fold(fold(dots[0], dots[1]), fold(dots[2], dots[3])), heads(a, b, 64));
    }
}
