//! Some rows of activations, for formats with groups of 32 whose bytes can be transposed as they are: the codes of two
//! groups of sixteen rows of weights at a time lie in registers and are multiplied with all of them.
//!
//! A tile would be written to memory and read back, which costs as much as multiplying it with eight rows. Where unpacking
//! has to come before transposing, [`super::quads`] are faster.

use super::store_floats;
use super::tile::{self, Ahead, shift};
use crate::kernels::activations::{COARSE_ORDER, Line, Side, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::Job;
use std::arch::x86_64::*;

/// Rows of weights in a vector.
const ROWS: usize = 16;

/// Rows of activations whose sums stay in the L1 cache.
const TOKENS: usize = 32;

/// What a chunk of sixteen rows is multiplied with, and where sums go.
pub struct Work {
    lines: [*const Line; TOKENS],
    sides: [*const Side; TOKENS],
    count: usize,
    stride: usize,
    q: usize,
    /// The scales and offsets of each group of the chunk.
    scale: [__m512; 8],
    offset: [__m512; 8],
    /// Each lane of the contract for each row of activations.
    sums: [[__m512; TOKENS]; 8],
    ahead: Ahead,
}

/// Computes all outputs of a job; `multiply` calls [`Work::scales`] and [`Work::groups`] for a chunk of sixteen rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, multiply: impl Fn(&[&[u8]; 16], &mut Work)) {
    let stride = chunks(job.row_len);
    let mut t = 0;
    while t < job.x.count() {
        let count = TOKENS.min(job.x.count() - t);
        let mut work = Work {
            lines: [std::ptr::null(); TOKENS],
            sides: [std::ptr::null(); TOKENS],
            count,
            stride,
            q: 0,
            scale: [_mm512_setzero_ps(); 8],
            offset: [_mm512_setzero_ps(); 8],
            sums: [[_mm512_setzero_ps(); TOKENS]; 8],
            ahead: Ahead::default(),
        };
        for i in 0..count {
            let x = job.x.lanes::<false>(t + i);
            assert!(x.lines.len() == 4 * stride && x.sides.len() == 8 * stride);
            (work.lines[i], work.sides[i]) = (x.lines.as_ptr(), x.sides.as_ptr());
        }
        for first in (job.first..job.end).step_by(ROWS) {
            let rows = tile::sixteen(job, first);
            work.ahead = Ahead::new(job, first + ROWS, ROWS, stride * 4);
            for sums in &mut work.sums {
                sums[..count].fill(_mm512_setzero_ps());
            }
            for q in 0..stride {
                work.q = q;
                tile::with_chunk::<F>(&rows, q, |chunk| multiply(chunk, &mut work));
            }
            for i in 0..count {
                let mut y = [0.0; ROWS];
                store_floats(tile::tree(|lane| work.sums[lane][i]), &mut y);
                if job.end - first >= ROWS {
                    job.y.write(t + i, first, &y);
                } else {
                    job.y.write(t + i, first, &y[..job.end - first]);
                }
            }
        }
        t += count;
    }
}

impl Work {
    /// Sets the scales and offsets of the chunk, as [`tile::scales_of`] gives them.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn scales(&mut self, scale: [__m512i; 8], offset: [__m512i; 8]) {
        let (scale, offset) = (tile::transpose(scale), tile::transpose(offset));
        for j in 0..8 {
            self.scale[COARSE_ORDER[j]] = _mm512_castsi512_ps(scale[j]);
            self.offset[COARSE_ORDER[j]] = _mm512_castsi512_ps(offset[j]);
        }
    }

    /// Multiplies groups `2 * i` and `2 * i + 1` of 32 of the chunk: eight vectors of codes for each.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn groups<F: Format>(&mut self, i: usize, codes: [__m512i; 16]) {
        assert!(i < 4 && self.q < self.stride && self.count <= TOKENS, "a chunk of the row");
        let shift = _mm512_set1_epi32(shift::<F>());
        self.ahead.step();
        let Self { stride, q, .. } = *self;
        for t in 0..self.count {
            // SAFETY: a row has four lines for each of `stride` chunks.
            let line = unsafe { &*self.lines[t].add(i * stride + q) };
            for odd in 0..2 {
                let lane = 2 * i + odd;
                // SAFETY: a row has sides for eight lanes of `stride` chunks.
                let side = unsafe { &*self.sides[t].add(lane * stride + q) };
                // Two sums that do not wait for each other.
                let mut dots = [_mm512_setzero_si512(); 2];
                if F::BIAS > 0 {
                    dots[0] = _mm512_srav_epi32(_mm512_set1_epi32(side.bias), shift);
                }
                for v in 0..8 {
                    let at = v / 4 * 32 + odd * 16 + v % 4 * 4;
                    let four: &[i8; 4] = line.0[at..].first_chunk().expect("four codes of a line");
                    let four = _mm512_set1_epi32(i32::from_ne_bytes(four.map(|code| code as u8)));
                    dots[v % 2] = _mm512_dpbusd_epi32(dots[v % 2], codes[8 * odd + v], four);
                }
                let dot = _mm512_cvtepi32_ps(_mm512_add_epi32(dots[0], dots[1]));
                let scale = _mm512_mul_ps(self.scale[lane], _mm512_set1_ps(side.scale));
                let mut sum = _mm512_fmadd_ps(scale, dot, self.sums[lane][t]);
                if F::OFFSET {
                    sum = _mm512_fmadd_ps(self.offset[lane], _mm512_set1_ps(side.sum), sum);
                }
                self.sums[lane][t] = sum;
            }
        }
    }
}

/// A chunk of a format whose bytes can be transposed as they are: see [`tile::fill_raw`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn multiply_raw<F: Format, const LAYOUT: u8>(
    rows: &[&[u8]; 16],
    work: &mut Work,
    raw: impl Fn(&[u8], &[u8], usize) -> __m512i,
    decode: impl Fn(__m512i) -> __m512i,
    scales: impl Fn(&[u8], &[u8]) -> [__m512; 2],
) {
    // Then the compiler needs no comparisons below.
    assert!(!F::FINE && rows.iter().all(|row| row.len() == F::CHUNK_BYTES));
    let (scale, offset) = tile::scales_of(rows, scales);
    work.scales(scale, offset);
    for i in 0..4 {
        let mut codes = [_mm512_setzero_si512(); 16];
        if LAYOUT == tile::BYTES {
            for odd in 0..2 {
                let z = tile::transpose(tile::raw_of(rows, &raw, 2 * i + odd));
                for v in 0..8 {
                    codes[8 * odd + v] = decode(z[v]);
                }
            }
        } else {
            tile::spread::<LAYOUT>(tile::transpose(tile::raw_of(rows, &raw, i)), 0, |group, v, z| {
                codes[8 * group + v] = decode(z);
            });
        }
        work.groups::<F>(i, codes);
    }
}
