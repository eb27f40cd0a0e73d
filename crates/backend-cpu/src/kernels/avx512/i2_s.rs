//! `i2_s` for AVX-512: planes of two bits, the first group highest, without scales.

use super::bytes::{Bytes, empty, part};
use super::one::{self, PAIRS, Packed, Pairs, Picks, Sums, picks};
use super::*;
use crate::kernels::activations::COARSE_ORDER;
use crate::kernels::format::Format;
use crate::kernels::matmul::Quad;

/// Two blocks of 32 bytes.
struct I2S;

impl Format for I2S {
    const CHUNK_BYTES: usize = 64;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!("i2_s", I2S, load_pair);

/// The kernels of this encoding on processors that permute bytes.
pub const VBMI_BLOCKS: Blocks = with_one!(BLOCKS, I2S);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 64], b: &[u8; 64]) -> Pair {
    let mut pair = empty([_mm512_set1_ps(1.0); 2]);
    for n in 0..2 {
        let packed = join(half(a, 32 * n), half(b, 32 * n));
        // The code 3 means what 1 does: then its upper bit is taken away.
        let both = _mm512_and_si512(packed, _mm512_srli_epi16::<1>(packed));
        let three = _mm512_and_si512(both, _mm512_set1_epi8(0x55));
        tq2_0::spread::<true>(_mm512_sub_epi8(packed, _mm512_add_epi8(three, three)), n, &mut pair);
    }
    pair
}

/// The meaning of the two bits from `bit` on of six, plus 1.
const fn meanings(bit: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = [0, 1, 2, 1][i >> bit & 3];
        i += 1;
    }
    Bytes(table)
}

/// As the lines of activations lie: half of two groups in a vector.
const TWO_GROUPS: Picks = {
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
fn twice(a: &[u8], b: &[u8], at: usize) -> __m512i {
    vbmi::insert(vbmi::four_times(part(a, at)), 0xFF00, part(b, at))
}

impl Packed for I2S {
    const BYTES: usize = 64;
    const READ: usize = 64;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &TWO_GROUPS;
    const GROUPS: [usize; 8] = COARSE_ORDER;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        static MEANINGS: [Bytes; 2] = [meanings(4), meanings(0)];
        // The first of two groups lies two bits higher; a look-up reads the lowest six bits.
        let shift = _mm512_set4_epi64(0, 0, 0x0002_0002_0002_0002, 0x0002_0002_0002_0002);
        let mut dots = [[_mm512_setzero_si512(); PAIRS]; 4];
        for v in 0..4 {
            let (n, half) = (v / 2, v % 2);
            let mut packed = [_mm512_setzero_si512(); PAIRS];
            for (p, rows) in rows.iter().enumerate() {
                packed[p] = _mm512_srlv_epi16(twice(rows[0], rows[1], 16 * v), shift);
            }
            for (plane, meanings) in MEANINGS.iter().enumerate() {
                let i = 2 * n + plane;
                for p in 0..PAIRS {
                    let codes = _mm512_permutexvar_epi8(packed[p], meanings.get());
                    dots[i][p] = _mm512_dpbusd_epi32(dots[i][p], codes, one::codes(x, 2 * i + half));
                }
                dots[i] = one::in_step(dots[i]);
            }
        }
        one::folded(dots, [_mm512_set1_ps(1.0); PAIRS])
    }
}
