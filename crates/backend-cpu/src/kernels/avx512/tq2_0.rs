//! `tq2_0` for AVX-512: planes of two bits under one scale.

use super::bytes::{Bytes, empty, heads};
use super::one::{self, PAIRS, Packed, Pairs, Picks, Sums, cuts, fold, halves, picks, words_at};
use super::*;
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

/// Part `k` of 64 bits of a vector holds numbers of group `k` of four: other eight of its 32 in each of four vectors.
const TURNED: Picks = {
    let mut numbers = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        let (n, v, k) = (i / 128, i / 32 % 4, i / 8 % 4);
        numbers[i / 32][i % 32] = 128 * n + 32 * k + 8 * ((k + v) % 4) + i % 8;
        i += 1;
    }
    picks(numbers)
};

impl Packed for Tq2_0 {
    const BYTES: usize = 66;
    const READ: usize = 66;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &TURNED;
    const GROUPS: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        // Each 64 bits give another group, so that the numbers of a group meet in one lane when the bytes are turned.
        static OWN: Bytes = cuts(2, [0, 2, 4, 6, 0, 2, 4, 6]);
        static SCALES: Bytes = words_at([62; 8]);
        let mut dots = [[_mm512_setzero_si512(); PAIRS]; 2];
        for (n, dots) in dots.iter_mut().enumerate() {
            let packed = rows.map(|[a, b]| join(half(a, 32 * n), half(b, 32 * n)));
            for v in 0..4 {
                for p in 0..PAIRS {
                    let turned = match v {
                        0 => packed[p],
                        1 => _mm512_permutex_epi64::<0b00_11_10_01>(packed[p]),
                        2 => _mm512_permutex_epi64::<0b01_00_11_10>(packed[p]),
                        _ => _mm512_permutex_epi64::<0b10_01_00_11>(packed[p]),
                    };
                    dots[p] = _mm512_dpbusd_epi32(dots[p], one::cut(turned, &OWN), one::codes(x, 4 * n + v));
                }
                *dots = one::in_step(*dots);
            }
        }
        let mut sums = [Sums::ZERO; PAIRS];
        for (p, [a, b]) in rows.iter().enumerate() {
            let scale = halves(load(a, 2), load(b, 2), &SCALES);
            sums[p] = Sums::coarse(fold(dots[0][p], dots[1][p]), scale);
        }
        sums
    }
}
