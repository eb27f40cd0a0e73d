//! `q5_0` for AVX-512: blocks of 22 bytes, a scale, 32 fifth bits and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q5_0;

blocks!("q5_0", Q5_0, load_pair);

/// Blocks 0 and 1 of what is loaded: their nibbles, and their beginnings; and the same when loading starts early.
static FIVE_BITS: FiveBits = FiveBits {
    step: 44,
    last: 112,
    nibbles: [two_halves(6, 28), two_halves(26, 48)],
    heads: [two_halves(0, 22), two_halves(20, 42)],
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 176], b: &[u8; 176]) -> Pair {
    let (heads, mut pair) = FIVE_BITS.codes::<2>(a, b);
    pair.scale = [head(0, heads); 2];
    pair
}

/// How to load blocks with a head, fifth bits and nibbles: two blocks of each row at `step * i` for i < 3, and at `last`.
pub struct FiveBits {
    pub step: usize,
    pub last: usize,
    pub nibbles: [Words; 2],
    pub heads: [Words; 2],
}

impl FiveBits {
    /// The codes, and the beginnings of all blocks: vector `i` has those of blocks 2i and 2i + 1 of `a` and `b`. The fifth
    /// bits are at byte `BITS` of a block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn codes<const BITS: i8>(&self, a: &[u8], b: &[u8]) -> ([__m512i; 4], Pair) {
        let mut heads = [_mm512_setzero_si512(); 4];
        let mut packed = heads;
        for i in 0..4 {
            let (at, early) = if i == 3 { (self.last, 1) } else { (self.step * i, 0) };
            let (a, b) = (load(a, at), load(b, at));
            packed[i] = _mm512_permutex2var_epi16(a, self.nibbles[early].get(), b);
            heads[i] = _mm512_permutex2var_epi16(a, self.heads[early].get(), b);
        }
        let (mut low, mut high) = (low4(packed), high4(packed));
        let first = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
        let first = _mm512_add_epi8(first, _mm512_set1_epi8(BITS));
        let last = _mm512_add_epi8(first, _mm512_set1_epi8(2));
        let each = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
        let sixteen = _mm512_set1_epi8(16);
        for i in 0..4 {
            let set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(heads[i], first), each);
            low[i] = _mm512_mask_add_epi8(low[i], set, low[i], sixteen);
            let set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(heads[i], last), each);
            high[i] = _mm512_mask_add_epi8(high[i], set, high[i], sixteen);
        }
        let none = [_mm512_setzero_ps(); 2];
        (heads, Pair { low, high, scale: none, offset: none })
    }
}

/// The half-precision numbers at word `word` (0 or 1) of all blocks, from their beginnings.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn head(word: i64, heads: [__m512i; 4]) -> __m512 {
    let even = _mm512_unpacklo_epi16(heads[0], heads[1]);
    let odd = _mm512_unpacklo_epi16(heads[2], heads[3]);
    let pick = _mm512_add_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 0, 0, 0), _mm512_set1_epi64(word));
    let words = _mm512_permutexvar_epi64(pick, _mm512_unpacklo_epi32(even, odd));
    _mm512_cvtph_ps(_mm512_castsi512_si256(words))
}
