//! EXL3's trellis for AVX-512: sixteen states in a vector, numbers computed where they are used.
//!
//! A block's bytes are permuted so that each lane of 32 bits has the three bytes with its state, in the order of the
//! inputs; a shift leaves the state. What follows is the codebook's arithmetic, exact up to its one rounding to half
//! precision, so the numbers are those of the `quant` crate. Where the processor computes in half precision, 32 numbers come
//! from states of 16 bits ([`halves`]).

mod halves;

use super::{Numbers, avx512};
use crate::kernels::Isa;
use crate::kernels::avx512::vbmi::permute;
use crate::kernels::matmul::Job;
use nibble_quant::Codec;
use nibble_quant::exl3::{Codebook, Exl3, input};
use std::arch::x86_64::*;

/// Bytes that are loaded for a block.
const LOADED: usize = 32;

/// A codec whose numbers these kernels compute.
#[derive(Clone, Copy)]
pub struct Trellis {
    codec: &'static Exl3,
    /// Whether to compute in half precision.
    halves: bool,
}

/// Where the states of a block lie.
struct Places {
    /// For each byte of sixteen lanes, the byte of the block.
    bytes: [u8; 64],
    /// How far each lane is shifted down.
    shift: [i32; 16],
    block_bytes: usize,
}

impl Places {
    fn of(codec: &Exl3) -> Self {
        let mut places = Self { bytes: [0; 64], shift: [0; 16], block_bytes: codec.spec().block_bytes };
        for j in 0..16 {
            let (first, lane) = (j / 4 * (16 + 3 * codec.bits) + j % 4 * codec.bits, input(j));
            // Bytes hold their first bit highest; the topmost byte of a lane is cut off.
            for (byte, place) in places.bytes[4 * lane..][..3].iter_mut().enumerate() {
                *place = (first / 8 + 2 - byte) as u8;
            }
            places.shift[lane] = 8 - (first % 8) as i32;
        }
        places
    }
}

impl Trellis {
    /// The kernels for a codec, where there are some.
    pub fn of(isa: Isa, codec: &dyn Codec) -> Option<Self> {
        let Isa::Avx512(proof) = isa else { return None };
        let codec = Exl3::of(codec).filter(|_| proof.has_vbmi())?;
        Some(Self { codec, halves: proof.has_fp16() })
    }

    /// Computes every output of a job.
    pub fn product(self, job: &Job<'_>) {
        if self.halves && job.row_len.is_multiple_of(halves::AT_ONCE) {
            // SAFETY: `of` saw the instructions.
            return unsafe { halves::product(self.codec, job) };
        }
        let places = Places::of(self.codec);
        // SAFETY: `of` makes a value only where the instructions were detected.
        unsafe {
            match self.codec.book {
                Codebook::ThreeInst => product::<ThreeInst>(self, job, &places),
                Codebook::Mcg => product::<Mcg>(self, job, &places),
                Codebook::Mul1 => product::<Mul1>(self, job, &places),
            }
        }
    }
}

impl Numbers for Trellis {
    #[inline(always)]
    fn bytes_of_64(self) -> usize {
        4 * self.codec.spec().block_bytes
    }

    fn get(self, _row: &[u8], _k: usize) -> f32 {
        unreachable!("rows are whole blocks of sixteen")
    }
}

/// The arithmetic of a codebook: [`Codebook::value`] for sixteen states.
trait Book {
    /// # Safety
    /// The processor must have the instructions of [`product`].
    unsafe fn values(states: __m512i) -> __m512;
}

struct ThreeInst;
struct Mcg;
struct Mul1;

impl Book for ThreeInst {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512 {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let mixed = _mm512_mullo_epi32(states, _mm512_set1_epi32(89_226_354));
            two_halves(_mm512_add_epi32(mixed, _mm512_set1_epi32(64_248_484)))
        }
    }
}

impl Book for Mcg {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512 {
        // SAFETY: the caller promises that the instructions are there.
        unsafe { two_halves(_mm512_mullo_epi32(states, _mm512_set1_epi32(0xCBAC_1FEDu32 as i32))) }
    }
}

impl Book for Mul1 {
    #[inline(always)]
    unsafe fn values(states: __m512i) -> __m512 {
        // SAFETY: the caller promises that the instructions are there.
        unsafe {
            let mixed = _mm512_mullo_epi32(states, _mm512_set1_epi32(0x83DC_D12Du32 as i32));
            let sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), mixed, _mm512_set1_epi8(1));
            // Half-precision 0x1EEE, and 1024 times that plus 0xC931: in multiples of 2^-18, so that all below is exact.
            let (step, start) = (1774.0 / 262_144.0, -884.0 / 256.0);
            in_half(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(step), _mm512_set1_ps(start)))
        }
    }
}

/// The sum of the half-precision numbers that each 32 bits become.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn two_halves(mixed: __m512i) -> __m512 {
    let (kept, flipped) = (_mm512_set1_epi32(0x8FFF_8FFFu32 as i32), _mm512_set1_epi32(0x3B60_3B60));
    let halves = _mm512_ternarylogic_epi32::<0x6A>(mixed, kept, flipped);
    // Their exponents are 12 to 15. In single precision that is three bits further down and 112 more, which is three bits
    // that are always clear.
    let widened = |halves| {
        let (kept, exponent) = (_mm512_set1_epi32(0x8FFF_E000u32 as i32), _mm512_set1_epi32(0x3800_0000));
        let widened = _mm512_ternarylogic_epi32::<0xEA>(_mm512_srai_epi32::<3>(halves), kept, exponent);
        _mm512_castsi512_ps(widened)
    };
    in_half(_mm512_add_ps(widened(_mm512_slli_epi32::<16>(halves)), widened(halves)))
}

/// Numbers, rounded to half precision.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn in_half(x: __m512) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x))
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<B: Book>(trellis: Trellis, job: &Job<'_>, places: &Places) {
    // SAFETY: both references cover the 64 bytes read, and `loadu` asks for no alignment.
    let (bytes, shift) = unsafe {
        (_mm512_loadu_si512(places.bytes.as_ptr().cast()), _mm512_loadu_si512(places.shift.as_ptr().cast()))
    };
    let low = _mm512_set1_epi32(0xFFFF);
    avx512::each_tile(job, trellis, |row, k| {
        let at = k / 16 * places.block_bytes;
        let block = match row.get(at..at + LOADED) {
            Some(block) => load(block),
            None => {
                let mut padded = [0; LOADED];
                padded[..row.len() - at].copy_from_slice(&row[at..]);
                load(&padded)
            }
        };
        let states = _mm512_and_si512(_mm512_srlv_epi32(permute(bytes, block), shift), low);
        // SAFETY: this function has the instructions that are asked for.
        unsafe { B::values(states) }
    });
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load(block: &[u8]) -> __m512i {
    let block: &[u8; LOADED] = block.first_chunk().expect("as many bytes as are loaded");
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_castsi256_si512(unsafe { _mm256_loadu_si256(block.as_ptr().cast()) })
}
