//! EXL3's trellis: 32 states of 16 bits in a vector, codes computed where they are used.
//!
//! A vector holds the states of four runs of eight elements, four runs apart: two pairs of inputs of each of eight outputs.
//! A permutation of bytes brings the bits of each half run into its 64 bits, and one shift of 16 bits out of 64 leaves the
//! states. The codebooks' 32 bits are two vectors of 16. Few rows of activations are multiplied with codes as they come, by
//! the same pairs of inputs for all outputs; for many, a panel of sixteen outputs is written down, its outputs in lanes.

use super::fp16::{add, to_integers};
use super::vbmi::{multishift, permute, permute_upper};
use crate::kernels::activations::Row;
use crate::kernels::matmul::{Fours, Job};
use nibble_quant::Codec;
use nibble_quant::exl3::{Codebook, Exl3, TILE};
use std::arch::x86_64::*;

/// Vectors of a tile.
const VECTORS: usize = 8;

/// Bytes that are loaded behind a block at most.
const BEHIND: usize = 64;

/// Room for any block, and what is loaded behind it.
const ROOM: usize = 2 + 32 * 8 + BEHIND;

/// Bytes ahead of the ones being read that are asked for.
const AHEAD: usize = 2048;

/// Rows of activations from which on a panel is worth its place.
const MANY: usize = 6;

/// Rows of activations that are multiplied with a panel at once.
const AT_ONCE: usize = 8;

/// Where the states of a tile lie.
struct Places {
    /// For each byte of eight half runs, the byte of the block, counted from that of the vector.
    bytes: [u8; 64],
    /// Where each byte of the states begins in its 64 bits.
    shift: [u8; 64],
    /// Where the bytes of vector `2v + h` begin: those of runs `v + 4i + 16h`.
    vector: [usize; VECTORS],
    /// How far behind are those of the last two runs, where one load does not reach all.
    split: usize,
    block_bytes: usize,
}

impl Places {
    fn of(codec: &Exl3) -> Self {
        let bits = codec.bits;
        // Four runs of 8 * bits bits, four apart, take 13 * bits + 2 bytes.
        let is_split = bits > 4;
        let mut places = Self {
            bytes: [0; 64],
            shift: [0; 64],
            vector: std::array::from_fn(|i| (i / 2 + 16 * (i % 2)) * bits),
            split: if is_split { 8 * bits } else { 0 },
            block_bytes: codec.spec().block_bytes,
        };
        for i in 0..8 {
            let (run, first) = (i / 2, (4 * (i % 2) + 1) * bits);
            let run = if is_split { run % 2 } else { run };
            for byte in 0..8 {
                // Bytes hold their first bit highest.
                places.bytes[8 * i + 7 - byte] = (4 * bits * run + first / 8 + byte) as u8;
            }
            for j in 0..4 {
                let at = 48 - first % 8 - j * bits;
                (places.shift[8 * i + 2 * j], places.shift[8 * i + 2 * j + 1]) = (at as u8, at as u8 + 8);
            }
        }
        places
    }
}

/// The dwords of the vectors `2v` and `2v + 1` that hold a pair of inputs of outputs 0 to 15: the first pair, or the second.
const fn outputs(second: i32) -> [i32; 16] {
    let mut index = [0; 16];
    let mut output = 0;
    while output < 16 {
        let (upper, run) = (output / 8, output % 8);
        index[output] = (16 * (run / 4) + 4 * (run % 4) + 2 * upper) as i32 + second;
        output += 1;
    }
    index
}

/// The arithmetic of a codebook: [`Codebook::code`] for 32 states.
trait Book {
    /// # Safety
    /// The processor must have the instructions of [`product`], and of half precision where its name says so.
    unsafe fn codes(states: __m512i) -> __m512i;
}

/// With `FP16`, for processors that compute in half precision.
struct ThreeInst<const FP16: bool>;
struct Mcg<const FP16: bool>;
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

/// The sum of the numbers that 16 bits and 16 bits become, in multiples of 2^-13.
#[inline(always)]
unsafe fn two_halves<const FP16: bool>([low, high]: [__m512i; 2]) -> __m512i {
    // SAFETY: the caller promises that the instructions are there.
    unsafe {
        let kept = _mm512_set1_epi16(0x8FFFu16 as i16);
        if FP16 {
            // Exponents 12 more than the codebook's, which changes no rounding; one more would not fit into three bits.
            let flipped = _mm512_set1_epi16(0x6B60);
            let half = |mixed| _mm512_ternarylogic_epi32::<0x6A>(mixed, kept, flipped);
            let sum = add(half(low), half(high));
            return to_integers(add(sum, sum));
        }
        let flipped = _mm512_set1_epi16(0x3B60);
        let half = |mixed| _mm512_ternarylogic_epi32::<0x6A>(mixed, kept, flipped);
        let [low, high] = [half(low), half(high)];
        // Of the halves in the upper 16 bits of each 32.
        let codes = |low, high| {
            let sum = in_half(_mm512_add_ps(widened(low), widened(high)));
            _mm512_cvtps_epi32(_mm512_mul_ps(sum, _mm512_set1_ps(8192.0)))
        };
        let even = codes(_mm512_slli_epi32::<16>(low), _mm512_slli_epi32::<16>(high));
        let odd = _mm512_slli_epi32::<16>(codes(low, high));
        _mm512_mask_blend_epi16(0xAAAA_AAAA, even, odd)
    }
}

/// The half-precision numbers in the upper 16 bits of each 32. Their exponents are 12 to 15; in single precision that is three
/// bits further down and 112 more, which is three bits that are always clear.
#[inline(always)]
unsafe fn widened(halves: __m512i) -> __m512 {
    // SAFETY: the caller promises that the instructions are there.
    unsafe {
        let (kept, exponent) = (_mm512_set1_epi32(0x8FFF_E000u32 as i32), _mm512_set1_epi32(0x3800_0000));
        let widened = _mm512_ternarylogic_epi32::<0xEA>(_mm512_srai_epi32::<3>(halves), kept, exponent);
        _mm512_castsi512_ps(widened)
    }
}

/// Numbers, rounded to half precision.
#[inline(always)]
unsafe fn in_half(x: __m512) -> __m512 {
    // SAFETY: the caller promises that the instructions are there.
    unsafe { _mm512_cvtph_ps(_mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)) }
}

impl<const FP16: bool> Book for ThreeInst<FP16> {
    #[inline(always)]
    unsafe fn codes(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let more = 64_248_484u32;
            let [low, high] = times(states, 89_226_354);
            let sum = _mm512_add_epi16(low, _mm512_set1_epi16(more as i16));
            let high = _mm512_add_epi16(high, _mm512_set1_epi16((more >> 16) as i16));
            let carry = _mm512_cmplt_epu16_mask(sum, low);
            two_halves::<FP16>([sum, _mm512_mask_add_epi16(high, carry, high, _mm512_set1_epi16(1))])
        }
    }
}

impl<const FP16: bool> Book for Mcg<FP16> {
    #[inline(always)]
    unsafe fn codes(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe { two_halves::<FP16>(times(states, 0xCBAC_1FED)) }
    }
}

impl Book for Mul1 {
    #[inline(always)]
    unsafe fn codes(states: __m512i) -> __m512i {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let [low, high] = times(states, 0x83DC_D12D);
            let sum = |bytes| _mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1));
            _mm512_add_epi16(_mm512_add_epi16(sum(low), sum(high)), _mm512_set1_epi16(-510))
        }
    }
}

/// Computes every output of a job. `panel` has room for sixteen rows of codes.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product(codec: &Exl3, has_fp16: bool, job: &Job<'_>, panel: &mut [Fours]) {
    let strips = Strips {
        job,
        places: Places::of(codec),
        numbers: codec.book.scale_and_offset(),
        tiles: job.row_len / TILE,
    };
    match (codec.book, has_fp16) {
        (Codebook::ThreeInst, true) => strips.product::<ThreeInst<true>>(panel),
        (Codebook::ThreeInst, false) => strips.product::<ThreeInst<false>>(panel),
        (Codebook::Mcg, true) => strips.product::<Mcg<true>>(panel),
        (Codebook::Mcg, false) => strips.product::<Mcg<false>>(panel),
        (Codebook::Mul1, _) => strips.product::<Mul1>(panel),
    }
}

/// A job, strip by strip of sixteen outputs.
struct Strips<'a> {
    job: &'a Job<'a>,
    places: Places,
    /// Scale and offset.
    numbers: (f32, f32),
    /// Tiles in a strip.
    tiles: usize,
}

impl Strips<'_> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn product<B: Book>(&self, panel: &mut [Fours]) {
        let count = self.job.x.count();
        for strip in self.job.first / TILE..self.job.end.div_ceil(TILE) {
            if count >= MANY {
                self.fill::<B>(strip, panel);
            }
            let mut t = 0;
            while t < count {
                t += match count - t {
                    AT_ONCE.. => self.with_panel::<AT_ONCE>(panel, strip, t),
                    rest if count >= MANY => match rest {
                        4.. => self.with_panel::<4>(panel, strip, t),
                        2.. => self.with_panel::<2>(panel, strip, t),
                        _ => self.with_panel::<1>(panel, strip, t),
                    },
                    4.. => self.few::<B, 4>(strip, t),
                    2.. => self.few::<B, 2>(strip, t),
                    _ => self.few::<B, 1>(strip, t),
                };
            }
        }
    }

    /// Calls `body` with each tile of a strip and its codes.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn each_tile<B: Book>(&self, strip: usize, mut body: impl FnMut(usize, [__m512i; VECTORS])) {
        let places = &self.places;
        // SAFETY: both references cover the 64 bytes read, and `loadu` asks for no alignment.
        let (bytes, shift) = unsafe {
            (
                _mm512_loadu_si512(places.bytes.as_ptr().cast()),
                _mm512_loadu_si512(places.shift.as_ptr().cast()),
            )
        };
        let mut padded = [0; ROOM];
        for tile in 0..self.tiles {
            let at = strip * self.job.row_bytes + tile * places.block_bytes;
            // What is loaded behind a block does not count, so it may be of the next one.
            let block = self.job.bytes.get(at..at + places.block_bytes + BEHIND).unwrap_or_else(|| {
                let block = &self.job.bytes[at..at + places.block_bytes];
                padded[..block.len()].copy_from_slice(block);
                &padded
            });
            for line in (0..places.block_bytes).step_by(64) {
                // A prefetch may name any address.
                _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().wrapping_add(AHEAD + line).cast());
            }
            let mut codes = [_mm512_setzero_si512(); VECTORS];
            for i in 0..VECTORS {
                // SAFETY: a vector begins in byte 19 * bits at the latest, its last two runs 8 * bits later where bits are
                // more than 4; from there, 64 bytes end before the block of 32 * bits + 2 and 64 bytes behind it do.
                let load = |offset: usize| unsafe {
                    _mm512_loadu_si512(block.as_ptr().add(places.vector[i] + offset).cast())
                };
                let mut halves = permute(bytes, load(0));
                if places.split > 0 {
                    halves = permute_upper(halves, bytes, load(places.split));
                }
                // SAFETY: this function has the instructions; those of half precision were asked for.
                codes[i] = unsafe { B::codes(multishift(shift, halves)) };
            }
            body(tile, codes);
        }
    }

    /// A strip times `T` rows of activations from `t` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn few<B: Book, const T: usize>(&self, strip: usize, t: usize) -> usize {
        let x: [Row<'_>; T] = std::array::from_fn(|i| self.job.x.row(t + i));
        let (first, second) = (index(&const { outputs(0) }), index(&const { outputs(1) }));
        let mut acc = [_mm512_setzero_ps(); T];
        let mut sums = [[_mm512_setzero_si512(); 2]; T];
        self.each_tile::<B>(strip, |tile, codes| {
            for i in 0..T {
                let x_of_tile: &[i16; TILE] =
                    x[i].wide[tile / 2].0[tile % 2 * TILE..].first_chunk().expect("half of a group");
                let fours = x_of_tile.as_chunks::<4>().0;
                for v in 0..4 {
                    let four = _mm512_set1_epi64(four(&fours[v]));
                    sums[i][0] = _mm512_dpwssd_epi32(sums[i][0], codes[2 * v], four);
                    sums[i][1] = _mm512_dpwssd_epi32(sums[i][1], codes[2 * v + 1], four);
                }
                if tile % 2 == 1 || tile + 1 == self.tiles {
                    let [a, b] = std::mem::replace(&mut sums[i], [_mm512_setzero_si512(); 2]);
                    let sum = _mm512_add_epi32(
                        _mm512_permutex2var_epi32(a, first, b),
                        _mm512_permutex2var_epi32(a, second, b),
                    );
                    let scale = _mm512_set1_ps(x[i].wide_scales[tile / 2]);
                    acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, acc[i]);
                }
            }
        });
        for i in 0..T {
            self.write(strip, t + i, &x[i], acc[i]);
        }
        T
    }

    /// Writes the codes of a strip down: a vector for each pair of inputs, outputs in its lanes.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn fill<B: Book>(&self, strip: usize, panel: &mut [Fours]) {
        let (first, second) = (index(&const { outputs(0) }), index(&const { outputs(1) }));
        let panel = &mut panel.as_chunks_mut::<VECTORS>().0[..self.tiles];
        self.each_tile::<B>(strip, |tile, codes| {
            for v in 0..4 {
                let [a, b] = [codes[2 * v], codes[2 * v + 1]];
                for (to, index) in panel[tile][2 * v..].iter_mut().zip([first, second]) {
                    // SAFETY: the reference covers the 64 bytes written, which are aligned.
                    unsafe {
                        _mm512_store_si512(to.0.as_mut_ptr().cast(), _mm512_permutex2var_epi32(a, index, b));
                    }
                }
            }
        });
    }

    /// A strip in a panel times `T` rows of activations from `t` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn with_panel<const T: usize>(&self, panel: &[Fours], strip: usize, t: usize) -> usize {
        let x: [Row<'_>; T] = std::array::from_fn(|i| self.job.x.row(t + i));
        let mut acc = [_mm512_setzero_ps(); T];
        let panel = &panel[..self.tiles * VECTORS];
        for (group, panel) in panel.chunks(2 * VECTORS).enumerate() {
            let mut sums = [_mm512_setzero_si512(); T];
            for (pair, codes) in panel.iter().enumerate() {
                // SAFETY: the reference covers the 64 bytes read, which are aligned.
                let codes = unsafe { _mm512_load_si512(codes.0.as_ptr().cast()) };
                for i in 0..T {
                    let pairs = x[i].wide[group].0.as_chunks::<2>().0;
                    let two = _mm512_set1_epi32(two(&pairs[pair]));
                    sums[i] = _mm512_dpwssd_epi32(sums[i], codes, two);
                }
            }
            for i in 0..T {
                let scale = _mm512_set1_ps(x[i].wide_scales[group]);
                acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i]), scale, acc[i]);
            }
        }
        for i in 0..T {
            self.write(strip, t + i, &x[i], acc[i]);
        }
        T
    }

    /// Writes those outputs of a strip that belong to the job.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn write(&self, strip: usize, t: usize, x: &Row<'_>, acc: __m512) {
        let (scale, offset) = self.numbers;
        let all = x.wide_scales.last().copied().unwrap_or(0.0);
        let y = _mm512_fmadd_ps(
            _mm512_set1_ps(offset),
            _mm512_set1_ps(all),
            _mm512_mul_ps(_mm512_set1_ps(scale), acc),
        );
        let mut outputs = [0.0; TILE];
        // SAFETY: the array has room for the 64 bytes written, and `storeu` asks for no alignment.
        unsafe { _mm512_storeu_ps(outputs.as_mut_ptr(), y) }
        let first = strip * TILE;
        let (from, to) = (self.job.first.max(first), self.job.end.min(first + TILE));
        self.job.y.write(t, from, &outputs[from - first..to - first]);
    }
}

/// Two codes as 32 bits.
#[inline(always)]
fn two(codes: &[i16; 2]) -> i32 {
    i32::from(codes[1]) << 16 | i32::from(codes[0] as u16)
}

/// Four codes as 64 bits.
#[inline(always)]
fn four([a, b, c, d]: &[i16; 4]) -> i64 {
    i64::from(two(&[*c, *d])) << 32 | i64::from(two(&[*a, *b]) as u32)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn index(of: &[i32; 16]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_si512(of.as_ptr().cast()) }
}
