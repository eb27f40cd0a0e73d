//! Many rows of activations: tiles of 32 rows of weights, sixteen of them in two vectors.

use super::*;
use crate::kernels::activations::{COARSE_ORDER, FINE_ORDER, Line, Row, Side, chunks, code_place};
use crate::kernels::matmul::{Job, TILE_ROWS, Tile, TileMut};

/// Rows of activations that share one reading of sixteen rows of a tile.
const TOKENS: usize = 4;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Unpacks [`TILE_ROWS`] rows from `first` on, as their format has them; rows past the end of the job repeat its last.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn fill<F: Format>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>, load: impl Fn(&[u8]) -> Wide) {
    for start in (0..TILE_ROWS).step_by(8) {
        let rows: [&[u8]; 8] = std::array::from_fn(|i| job.row((first + start + i).min(job.end - 1)));
        for q in 0..chunks(job.row_len) {
            let mut wide = [empty([_mm256_setzero_ps(); 2]); 8];
            for i in 0..8 {
                let rest = &rows[i][q * F::CHUNK_BYTES..];
                let mut padded;
                let bytes = match rest.get(..F::CHUNK_BYTES) {
                    Some(bytes) => bytes,
                    None => {
                        padded = [0; LONGEST];
                        padded[..rest.len()].copy_from_slice(rest);
                        &padded[..F::CHUNK_BYTES]
                    }
                };
                wide[i] = load(bytes);
            }
            fill_chunk::<F>(&wide, tile, q, start);
        }
    }
}

/// Chunk `q` of the eight rows from `start` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fill_chunk<F: Format>(wide: &[Wide; 8], tile: &mut TileMut<'_>, q: usize, start: usize) {
    let (sixteen, eight) = (start / 16, start / 8 % 2);
    for i in 0..4 {
        for part in 0..2 {
            let codes = transpose(each(wide, |w| if part == 0 { w.low[i] } else { w.high[i] }));
            for j in 0..8 {
                let (group, v) = (2 * i + j / 4, 4 * part + j % 4);
                let to = &mut tile.codes[tile.codes_at::<F>(q, group, v) + sixteen].0[32 * eight..][..32];
                // SAFETY: the slice covers the 32 bytes written, and `storeu` asks for no alignment.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), codes[j]) }
            }
        }
    }
    let (order, parts) = if F::FINE { (FINE_ORDER, 2) } else { (COARSE_ORDER, 1) };
    for part in 0..parts {
        let scales = transpose(each(wide, |w| _mm256_castps_si256(w.scale[part])));
        let offsets = transpose(each(wide, |w| _mm256_castps_si256(w.offset[part])));
        for j in 0..8 {
            let at = tile.group_at::<F>(q, part, order[j]) + sixteen;
            let half = |x: &mut [f32; 16], from| {
                let to = x[8 * eight..].first_chunk_mut().expect("two halves");
                store_floats(_mm256_castsi256_ps(from), to);
            };
            half(&mut tile.scale[at].0, scales[j]);
            if F::OFFSET {
                half(&mut tile.offset[at].0, offsets[j]);
            }
        }
    }
}

/// One vector of each row. (Written out: `map` would not be compiled for this instruction set.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn each(w: &[Wide; 8], vector: impl Fn(&Wide) -> __m256i) -> [__m256i; 8] {
    [
        vector(&w[0]),
        vector(&w[1]),
        vector(&w[2]),
        vector(&w[3]),
        vector(&w[4]),
        vector(&w[5]),
        vector(&w[6]),
        vector(&w[7]),
    ]
}

/// Eight vectors of eight integers, rows to columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose(z: [__m256i; 8]) -> [__m256i; 8] {
    let in_lanes = |z: [__m256i; 4]| {
        let (a, b) = (_mm256_unpacklo_epi32(z[0], z[1]), _mm256_unpackhi_epi32(z[0], z[1]));
        let (c, d) = (_mm256_unpacklo_epi32(z[2], z[3]), _mm256_unpackhi_epi32(z[2], z[3]));
        [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ]
    };
    let (s, t) = (in_lanes([z[0], z[1], z[2], z[3]]), in_lanes([z[4], z[5], z[6], z[7]]));
    [
        _mm256_permute2x128_si256::<0x20>(s[0], t[0]),
        _mm256_permute2x128_si256::<0x20>(s[1], t[1]),
        _mm256_permute2x128_si256::<0x20>(s[2], t[2]),
        _mm256_permute2x128_si256::<0x20>(s[3], t[3]),
        _mm256_permute2x128_si256::<0x31>(s[0], t[0]),
        _mm256_permute2x128_si256::<0x31>(s[1], t[1]),
        _mm256_permute2x128_si256::<0x31>(s[2], t[2]),
        _mm256_permute2x128_si256::<0x31>(s[3], t[3]),
    ]
}

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    let mut t = 0;
    while t < job.x.count() {
        t += match job.x.count() - t {
            // Signed codes need more registers for each row.
            TOKENS.. if F::BIAS != 128 => block::<F, TOKENS>(job, first, tile, t),
            2.. => block::<F, 2>(job, first, tile, t),
            _ => block::<F, 1>(job, first, tile, t),
        };
    }
}

/// The whole tile for `T` rows of activations from `t` on; returns `T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block<F: Format, const T: usize>(job: &Job<'_>, first: usize, tile: &Tile<'_>, t: usize) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    for sixteen in 0..TILE_ROWS / 16 {
        let n = first + 16 * sixteen;
        if n >= job.end {
            break;
        }
        let mut lanes = [[[0.0; 16]; T]; 8];
        for (lane, sums) in lanes.iter_mut().enumerate() {
            one_lane::<F, T>(tile, &x, job.row_len, lane, sixteen, sums);
        }
        for i in 0..T {
            let mut y = [0.0; 16];
            for half in 0..2 {
                let l = |lane: usize| load_floats(half_of(&lanes[lane][i], half));
                let sum = |a, b| _mm256_add_ps(a, b);
                let even = sum(sum(l(0), l(4)), sum(l(2), l(6)));
                let odd = sum(sum(l(1), l(5)), sum(l(3), l(7)));
                let to = y[8 * half..].first_chunk_mut().expect("two halves");
                store_floats(sum(sum(even, odd), _mm256_setzero_ps()), to);
            }
            job.y.write(t + i, n, &y[..16.min(job.end - n)]);
        }
    }
    T
}

#[inline(always)]
fn half_of(x: &[f32; 16], half: usize) -> &[f32; 8] {
    x[8 * half..].first_chunk().expect("two halves")
}

/// The sums of the groups `lane`, `lane + 8`, ... of sixteen rows of weights with `T` rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one_lane<F: Format, const T: usize>(
    tile: &Tile<'_>,
    x: &[Row<'_>; T],
    row_len: usize,
    lane: usize,
    sixteen: usize,
    out: &mut [[f32; 16]; T],
) {
    let (parts, vectors, group_len) = if F::FINE { (2, 4, 16) } else { (1, 8, 32) };
    let stride = chunks(row_len);
    // Every eighth group; the last chunk of a row may end before this lane.
    let groups = (row_len.div_ceil(group_len) + 7 - lane) / 8;
    let start = lane * stride * parts;
    let first = tile.lane(lane) * parts;
    let codes = &tile.codes[first * vectors * 2..][..groups * vectors * 2];
    let (scales, offsets) = (&tile.scale[first * 2..][..groups * 2], &tile.offset[first * 2..][..groups * 2]);
    let sides: [*const Side; T] = std::array::from_fn(|i| {
        let sides = if F::FINE { x[i].fine_lanes } else { x[i].coarse_lanes };
        sides[start..][..groups].as_ptr()
    });
    let lines: [*const Line; T] = std::array::from_fn(|i| {
        assert_eq!(x[i].lines.len(), 4 * stride);
        x[i].lines.as_ptr()
    });
    let ones = _mm256_set1_epi16(1);
    let depth = if F::BIAS == 128 { 1 } else { pairs_in_16_bits(F::TOP).min(vectors) };
    let mut sums = [[_mm256_setzero_ps(); 2]; T];
    for g in 0..groups {
        let (q, part) = (g / parts, g % parts);
        let (group32, half) = if F::FINE { (4 * part + lane / 2, lane % 2) } else { (lane, 0) };
        let line = group32 / 2 * stride + q;
        let mut dots = [[_mm256_setzero_si256(); 2]; T];
        if F::BIAS != 128 {
            for i in 0..T {
                // SAFETY: there are as many sides as groups, by the slices above.
                let bias = _mm256_set1_epi32(unsafe { (*sides[i].add(g)).bias } / 128 * F::BIAS);
                dots[i] = [bias; 2];
            }
        }
        for from in (0..vectors).step_by(depth) {
            let mut short = [[_mm256_setzero_si256(); 2]; T];
            for v in from..vectors.min(from + depth) {
                let fours = &codes[(g * vectors + v) * 2 + sixteen].0;
                let w = [load(fours, 0), load(fours, 32)];
                let at = code_place(32 * group32 + 4 * (4 * half + v)) % 64;
                for i in 0..T {
                    // SAFETY: `line` lies below four times the stride, and `at` names four codes of a line.
                    let four =
                        unsafe { (*lines[i].add(line)).0.as_ptr().add(at).cast::<i32>().read_unaligned() };
                    let four = _mm256_set1_epi32(four);
                    short[i][0] = _mm256_add_epi16(short[i][0], pairs::<F>(w[0], four));
                    short[i][1] = _mm256_add_epi16(short[i][1], pairs::<F>(w[1], four));
                }
            }
            for i in 0..T {
                dots[i][0] = _mm256_add_epi32(dots[i][0], _mm256_madd_epi16(short[i][0], ones));
                dots[i][1] = _mm256_add_epi32(dots[i][1], _mm256_madd_epi16(short[i][1], ones));
            }
        }
        let (scale, offset) = (&scales[2 * g + sixteen].0, &offsets[2 * g + sixteen].0);
        for n in 0..2 {
            let (scale, offset) = (load_floats(half_of(scale, n)), load_floats(half_of(offset, n)));
            for i in 0..T {
                // SAFETY: as above.
                let side = unsafe { *sides[i].add(g) };
                let scale = _mm256_mul_ps(scale, _mm256_set1_ps(side.scale));
                sums[i][n] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots[i][n]), sums[i][n]);
                if F::OFFSET {
                    sums[i][n] = _mm256_fmadd_ps(offset, _mm256_set1_ps(side.sum), sums[i][n]);
                }
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        for half in 0..2 {
            store_floats(sum[half], out[8 * half..].first_chunk_mut().expect("two halves"));
        }
    }
}
