//! Products with activations as floats: for float codecs, and for every codec where exact work is asked for.

use super::Isa;
use super::matmul::Job;
use super::scalar::tree;
use half::{bf16, f16};
use nibble_quant::Codec;

/// Rows of weights decoded at a time.
pub const TILE_ROWS: usize = 4;

/// Bytes of weights that all rows of activations are multiplied with before the next: what stays in an L2 cache.
const CACHED_BYTES: usize = 256 << 10;

/// Rows of activations up to which weights are read in one go.
const FEW: usize = 4;

/// How stored numbers become floats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// As they are.
    F32,
    /// Half precision.
    F16,
    /// The upper half of a float.
    Bf16,
}

impl Stored {
    const fn of(codec: &str) -> Option<Self> {
        match codec.as_bytes() {
            b"f32" => Some(Self::F32),
            b"f16" => Some(Self::F16),
            b"bf16" => Some(Self::Bf16),
            _ => None,
        }
    }
}

impl Stored {
    /// Bytes of 64 numbers.
    #[inline(always)]
    fn bytes_of_64(self) -> usize {
        if matches!(self, Self::F32) { 256 } else { 128 }
    }

    /// Number `k` of a row: of one that does not end with a whole vector.
    #[inline(always)]
    fn get(self, row: &[u8], k: usize) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes(*row[4 * k..].first_chunk().expect("a number of the row")),
            Self::F16 => f16::from_le_bytes([row[2 * k], row[2 * k + 1]]).to_f32(),
            Self::Bf16 => bf16::from_le_bytes([row[2 * k], row[2 * k + 1]]).to_f32(),
        }
    }
}

/// Whether a codec's rows are read without decoding them first.
pub fn reads_in_place(codec: &dyn Codec) -> bool {
    Stored::of(codec.spec().name).is_some()
}

/// Computes every output of a job.
pub fn product(isa: Isa, codec: &dyn Codec, job: &Job<'_>, decoded: &mut [f32]) {
    if let Some(stored) = Stored::of(codec.spec().name) {
        return stored_product(isa, stored, job);
    }
    let decoded = &mut decoded[..TILE_ROWS * job.row_len];
    for first in (job.first..job.end).step_by(TILE_ROWS) {
        let count = TILE_ROWS.min(job.end - first);
        for (n, out) in decoded.chunks_exact_mut(job.row_len).take(count).enumerate() {
            let row = first + n;
            codec.decode_row_of(row % codec.rows(), job.row(row / codec.rows()), out);
        }
        // SAFETY: floats are bytes without padding, and any alignment is fine for bytes.
        let bytes = unsafe { std::slice::from_raw_parts(decoded.as_ptr().cast(), size_of_val(&*decoded)) };
        let y = job.y.at_column(first);
        let part = Job { bytes, row_bytes: 4 * job.row_len, first: 0, end: count, y, ..*job };
        stored_product(isa, Stored::F32, &part);
    }
}

fn stored_product(isa: Isa, stored: Stored, job: &Job<'_>) {
    let cached = (CACHED_BYTES / job.row_bytes.max(1)).max(TILE_ROWS) / TILE_ROWS * TILE_ROWS;
    // Few rows of activations are done in one go.
    let rows_at_once = if job.x.count() <= FEW { job.end - job.first } else { cached };
    for first in (job.first..job.end).step_by(rows_at_once) {
        let part = Job { first, end: job.end.min(first + rows_at_once), ..*job };
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => {
                // SAFETY: the value of `isa` proves that the instructions were detected.
                unsafe { avx512::product(stored, &part) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => {
                // SAFETY: as above.
                unsafe { avx2::product(stored, &part) }
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::NeonI8mm(_) => {
                // SAFETY: as above.
                unsafe { neon::product(stored, &part) }
            }
            _ => twin(stored, &part),
        }
    }
}

/// The twin of the kernels below.
fn twin(stored: Stored, job: &Job<'_>) {
    for n in job.first..job.end {
        let row = job.row(n);
        for t in 0..job.x.count() {
            let mut lanes = [0.0; 16];
            for (k, x) in job.x.row(t).floats.iter().enumerate() {
                lanes[k % 16] = stored.get(row, k).mul_add(*x, lanes[k % 16]);
            }
            job.y.write(t, n, &[fold(&lanes)]);
        }
    }
}

fn fold(lanes: &[f32; 16]) -> f32 {
    tree(&std::array::from_fn(|i| lanes[i] + lanes[i + 8]))
}

/// The loops around a register tile of [`TILE_ROWS`] rows of weights and `$tokens` of activations, whose vectors of 16 numbers
/// are `$vector` (made, loaded, multiplied and stored by the functions in scope).
macro_rules! tiles {
    ($features:literal, $vector:ty, $tokens:literal) => {
        /// Computes every output of a job.
        #[target_feature(enable = $features)]
        pub fn product(stored: Stored, job: &Job<'_>) {
            match stored {
                Stored::F32 => each_tile(job, Stored::F32, |row, k| load_f32(row, k)),
                Stored::F16 => each_tile(job, Stored::F16, |row, k| load_f16(row, k)),
                Stored::Bf16 => each_tile(job, Stored::Bf16, |row, k| load_bf16(row, k)),
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        pub fn each_tile(job: &Job<'_>, stored: Stored, load: impl Fn(&[u8], usize) -> $vector) {
            let mut t = 0;
            while t < job.x.count() {
                t += match job.x.count() - t {
                    $tokens.. => each_row::<$tokens>(job, t, stored, &load),
                    2.. => each_row::<2>(job, t, stored, &load),
                    _ => each_row::<1>(job, t, stored, &load),
                };
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn each_row<const T: usize>(
            job: &Job<'_>,
            t: usize,
            stored: Stored,
            load: &impl Fn(&[u8], usize) -> $vector,
        ) -> usize {
            // Streams far apart: each goes on where it is when a row ends.
            let stream = (job.end - job.first) / TILE_ROWS;
            for n in job.first..job.first + stream {
                tile::<TILE_ROWS, T>(job, std::array::from_fn(|r| n + r * stream), t, stored, load);
            }
            for n in job.first + TILE_ROWS * stream..job.end {
                tile::<1, T>(job, [n], t, stored, load);
            }
            T
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn tile<const R: usize, const T: usize>(
            job: &Job<'_>,
            n: [usize; R],
            t: usize,
            stored: Stored,
            load: &impl Fn(&[u8], usize) -> $vector,
        ) {
            let rows: [&[u8]; R] = n.map(|n| job.row(n));
            let x: [&[f32]; T] = std::array::from_fn(|i| job.x.row(t + i).floats);
            let mut sums = [[zero(); T]; R];
            let whole = job.row_len / 16 * 16;
            for k in (0..whole).step_by(16) {
                let mut now = [zero(); T];
                for i in 0..T {
                    now[i] = load_x(x[i], k);
                }
                for r in 0..R {
                    if k % 64 == 0 {
                        let bytes = stored.bytes_of_64();
                        for line in 0..bytes.div_ceil(64) {
                            prefetch(rows[r], k / 64 * bytes + 64 * line);
                        }
                    }
                    let w = load(rows[r], k);
                    for i in 0..T {
                        sums[r][i] = mul_add(w, now[i], sums[r][i]);
                    }
                }
            }
            if whole < job.row_len {
                // The rest of a row, filled up with zeros.
                let mut rest = [zero(); T];
                for i in 0..T {
                    let mut padded = [0.0; 16];
                    padded[..job.row_len - whole].copy_from_slice(&x[i][whole..]);
                    rest[i] = load_x(&padded, 0);
                }
                for r in 0..R {
                    let mut padded = [0.0f32; 16];
                    for (k, w) in (whole..job.row_len).zip(&mut padded) {
                        *w = stored.get(rows[r], k);
                    }
                    let w = load_x(&padded, 0);
                    for i in 0..T {
                        sums[r][i] = mul_add(w, rest[i], sums[r][i]);
                    }
                }
            }
            for i in 0..T {
                for r in 0..R {
                    job.y.write(t + i, n[r], &[fold(&lanes(sums[r][i]))]);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::*;
    use std::arch::x86_64::*;

    tiles!("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", __m512, 4);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> __m512 {
        _mm512_setzero_ps()
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mul_add(w: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(w, x, sum)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_x(x: &[f32], k: usize) -> __m512 {
        let x: &[f32; 16] = x[k..].first_chunk().expect("16 numbers");
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_f32(row: &[u8], k: usize) -> __m512 {
        let bytes: &[u8; 64] = row[4 * k..].first_chunk().expect("16 numbers");
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_16_bits(row: &[u8], k: usize) -> __m256i {
        let bytes: &[u8; 32] = row[2 * k..].first_chunk().expect("16 numbers");
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_f16(row: &[u8], k: usize) -> __m512 {
        _mm512_cvtph_ps(load_16_bits(row, k))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_bf16(row: &[u8], k: usize) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_16_bits(row, k))))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn lanes(sum: __m512) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        // SAFETY: the array has room for the 64 bytes written, and `storeu` asks for no alignment.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sum) }
        lanes
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn prefetch(row: &[u8], at: usize) {
        // A prefetch may name any address.
        _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(at + 2048).cast());
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::*;
    use std::arch::x86_64::*;

    tiles!("avx2,fma,f16c", [__m256; 2], 4);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> [__m256; 2] {
        [_mm256_setzero_ps(); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn mul_add(w: [__m256; 2], x: [__m256; 2], sum: [__m256; 2]) -> [__m256; 2] {
        [_mm256_fmadd_ps(w[0], x[0], sum[0]), _mm256_fmadd_ps(w[1], x[1], sum[1])]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_x(x: &[f32], k: usize) -> [__m256; 2] {
        let x: &[f32; 16] = x[k..].first_chunk().expect("16 numbers");
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_f32(row: &[u8], k: usize) -> [__m256; 2] {
        let bytes: &[u8; 64] = row[4 * k..].first_chunk().expect("16 numbers");
        let x: *const f32 = bytes.as_ptr().cast();
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        unsafe { [_mm256_loadu_ps(x), _mm256_loadu_ps(x.add(8))] }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_16_bits(row: &[u8], k: usize) -> [__m128i; 2] {
        let bytes: &[u8; 32] = row[2 * k..].first_chunk().expect("16 numbers");
        let x: *const __m128i = bytes.as_ptr().cast();
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        unsafe { [_mm_loadu_si128(x), _mm_loadu_si128(x.add(1))] }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn load_f16(row: &[u8], k: usize) -> [__m256; 2] {
        let [a, b] = load_16_bits(row, k);
        [_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_bf16(row: &[u8], k: usize) -> [__m256; 2] {
        load_16_bits(row, k).map(|x| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x))))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes(sum: [__m256; 2]) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        // SAFETY: the array has room for the 64 bytes written, and `storeu` asks for no alignment.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(8), sum[1]);
        }
        lanes
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn prefetch(row: &[u8], at: usize) {
        // A prefetch may name any address.
        _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(at + 2048).cast());
    }
}

#[cfg(target_arch = "aarch64")]
mod neon;
