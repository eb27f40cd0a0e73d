//! The rows that a matrix is multiplied with, as they are and rounded to eight bits.
//!
//! A row is cut into groups of 32 numbers, each rounded to `i8` codes under its own scale: `scale = max|x| / 127`,
//! `code = x * (127 / max|x|)` to the nearest integer, ties to even. A group whose numbers are all below 1e-30 is 0. A
//! group with an infinity or a NaN gets the scale NaN and codes 0, so that every output that it enters is NaN.
//!
//! Eight groups are a chunk of 256 codes, in the order in which kernels want them: for each pair of groups `2i`,
//! `2i + 1` the first 16 codes of both, then the last 16 of both. Scales and sums of a chunk lie in the order in which a
//! transposing addition of four vectors of two groups leaves its sums: [`COARSE_ORDER`], and [`FINE_ORDER`] for groups
//! of 16. The last chunk of a row is filled up with zeros.

use super::Isa;
use std::cell::UnsafeCell;

/// Numbers in a chunk.
pub const CHUNK: usize = 256;

/// Which group of 32 of a chunk lies at each place.
pub const COARSE_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Which group of 16 of half a chunk lies at each place.
pub const FINE_ORDER: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

/// Where code `i` of a chunk lies.
pub const fn code_place(i: usize) -> usize {
    let (group, half, within) = (i / 32, i / 16 % 2, i % 16);
    group / 2 * 64 + half * 32 + group % 2 * 16 + within
}

/// 256 codes of a row, see [`code_place`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Codes(pub [i8; CHUNK]);

/// What belongs to the eight groups of 32 of a chunk, in [`COARSE_ORDER`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub struct Coarse {
    /// The scale of each group.
    pub scale: [f32; 8],
    /// -128 times the sum of its codes: what turns a dot product with codes + 128 into the right one.
    pub bias: [i32; 8],
    /// The sum of its codes times its scale: what an offset multiplies.
    pub sum: [f32; 8],
}

/// What belongs to the sixteen groups of 16 of a chunk, in [`FINE_ORDER`] for each half.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Fine {
    /// As in [`Coarse`].
    pub scale: [[f32; 8]; 2],
    /// As in [`Coarse`].
    pub bias: [[i32; 8]; 2],
    /// As in [`Coarse`].
    pub sum: [[f32; 8]; 2],
}

/// Which forms of a row are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// Eight-bit codes, for integer codecs.
    pub codes: bool,
    /// The numbers as they are, for float codecs and for exact work.
    pub floats: bool,
}

impl Forms {
    /// Only codes.
    pub const CODES: Self = Self { codes: true, floats: false };
    /// Only floats.
    pub const FLOATS: Self = Self { codes: false, floats: true };
    /// Both.
    pub const BOTH: Self = Self { codes: true, floats: true };
}

/// One row in its forms. A form that is not kept is empty.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Chunks of codes.
    pub codes: &'a [Codes],
    /// Their groups of 32.
    pub coarse: &'a [Coarse],
    /// Their groups of 16.
    pub fine: &'a [Fine],
    /// The numbers.
    pub floats: &'a [f32],
}

/// A buffer of rows. It allocates when it is made and never again.
pub struct Activations {
    codes: Shared<Codes>,
    coarse: Shared<Coarse>,
    fine: Shared<Fine>,
    floats: Shared<f32>,
    rows: usize,
    row_len: usize,
}

/// A slice whose parts are written by several threads, each its own rows.
struct Shared<T>(Box<[UnsafeCell<T>]>);

// SAFETY: only `fill_shared` writes without `&mut`, and its callers promise that no row is written while it is used.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn new(len: usize, value: T) -> Self {
        Self((0..len).map(|_| UnsafeCell::new(value)).collect())
    }

    fn row(&self, row: usize, stride: usize) -> &[T] {
        let cells = &self.0[row * stride..(row + 1) * stride];
        // SAFETY: `UnsafeCell<T>` is laid out as `T`; nobody writes this row meanwhile, as `fill_shared` asks for.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// # Safety
    /// Nobody else may use the row while the result lives.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that the row is its own")]
    unsafe fn row_mut(&self, row: usize, stride: usize) -> &mut [T] {
        let cells = &self.0[row * stride..(row + 1) * stride];
        // SAFETY: `UnsafeCell<T>` allows the write, and the caller promises that the row is its own.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

/// Chunks that a row of `row_len` numbers takes.
pub const fn chunks(row_len: usize) -> usize {
    row_len.div_ceil(CHUNK)
}

impl Activations {
    /// A buffer for `rows` rows of up to `row_len` numbers in `forms`.
    pub fn new(rows: usize, row_len: usize, forms: Forms) -> Self {
        let codes = if forms.codes { rows * chunks(row_len) } else { 0 };
        Self {
            codes: Shared::new(codes, Codes([0; CHUNK])),
            coarse: Shared::new(codes, Coarse::default()),
            fine: Shared::new(codes, Fine::default()),
            floats: Shared::new(if forms.floats { rows * row_len } else { 0 }, 0.0),
            rows,
            row_len,
        }
    }

    /// Bytes that [`Activations::new`] reserves.
    pub fn bytes(rows: usize, row_len: usize, forms: Forms) -> usize {
        let chunk = size_of::<Codes>() + size_of::<Coarse>() + size_of::<Fine>();
        let codes = if forms.codes { chunks(row_len) * chunk } else { 0 };
        rows * (codes + if forms.floats { row_len * size_of::<f32>() } else { 0 })
    }

    /// Uses the buffer for rows of another length from now on; what it holds is lost.
    ///
    /// # Panics
    /// If fewer than `rows` rows of that length fit.
    pub fn reshape(&mut self, rows: usize, row_len: usize) {
        let fits = |have: usize, stride: usize| have == 0 || rows * stride <= have;
        let codes = fits(self.codes.0.len(), chunks(row_len));
        assert!(codes && fits(self.floats.0.len(), row_len), "{rows} rows of {row_len} numbers do not fit");
        (self.rows, self.row_len) = (rows, row_len);
    }

    /// Rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// The forms that are kept.
    pub fn forms(&self) -> Forms {
        Forms { codes: !self.codes.0.is_empty(), floats: !self.floats.0.is_empty() }
    }

    /// One row.
    pub fn row(&self, row: usize) -> Row<'_> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let codes = if self.codes.0.is_empty() { 0 } else { chunks(self.row_len) };
        let floats = if self.floats.0.is_empty() { 0 } else { self.row_len };
        Row {
            codes: self.codes.row(row, codes),
            coarse: self.coarse.row(row, codes),
            fine: self.fine.row(row, codes),
            floats: self.floats.row(row, floats),
        }
    }

    /// Sets one row.
    pub fn fill(&mut self, isa: Isa, row: usize, x: &[f32]) {
        // SAFETY: `&mut self` proves that nobody else uses any row.
        unsafe { self.fill_shared(isa, row, x) }
    }

    /// Sets one row while other threads set others.
    ///
    /// # Safety
    /// Until it returns, no other thread may read or set this row.
    pub unsafe fn fill_shared(&self, isa: Isa, row: usize, x: &[f32]) {
        assert!(row < self.rows && x.len() == self.row_len, "{} numbers in row {row}", x.len());
        if !self.floats.0.is_empty() {
            // SAFETY: the caller promises that this row is its own.
            unsafe { self.floats.row_mut(row, self.row_len) }.copy_from_slice(x);
        }
        if self.codes.0.is_empty() {
            return;
        }
        let stride = chunks(self.row_len);
        // SAFETY: as above.
        let (codes, coarse, fine) = unsafe {
            (
                self.codes.row_mut(row, stride),
                self.coarse.row_mut(row, stride),
                self.fine.row_mut(row, stride),
            )
        };
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => {
                // SAFETY: the value of `isa` proves that the instructions were detected.
                unsafe { quantize_avx512(x, codes, coarse, fine) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => {
                // SAFETY: as above.
                unsafe { quantize_avx2(x, codes, coarse, fine) }
            }
            _ => quantize(x, codes, coarse, fine),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn quantize_avx2(x: &[f32], codes: &mut [Codes], coarse: &mut [Coarse], fine: &mut [Fine]) {
    quantize(x, codes, coarse, fine);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma")]
fn quantize_avx512(x: &[f32], codes: &mut [Codes], coarse: &mut [Coarse], fine: &mut [Fine]) {
    quantize(x, codes, coarse, fine);
}

/// Rounds a row; the same operations on every processor, so the compiler may use what vectors there are.
#[inline(always)]
fn quantize(x: &[f32], codes: &mut [Codes], coarse: &mut [Coarse], fine: &mut [Fine]) {
    for (((x, codes), coarse), fine) in x.chunks(CHUNK).zip(codes).zip(coarse).zip(fine) {
        if let Ok(x) = x.try_into() {
            quantize_chunk(x, codes, coarse, fine);
        } else {
            let mut padded = [0.0; CHUNK];
            padded[..x.len()].copy_from_slice(x);
            quantize_chunk(&padded, codes, coarse, fine);
        }
    }
}

#[inline(always)]
fn quantize_chunk(x: &[f32; CHUNK], codes: &mut Codes, coarse: &mut Coarse, fine: &mut Fine) {
    for group in 0..8 {
        let x: &[f32; 32] = x[32 * group..].first_chunk().expect("a chunk has eight groups");
        let (scale, inverse) = scale_of(x);
        let mut sums = [0i32; 2];
        for (half, sum) in sums.iter_mut().enumerate() {
            let at = code_place(32 * group + 16 * half);
            let out: &mut [i8; 16] = codes.0[at..].first_chunk_mut().expect("a chunk has sixteen halves");
            for (code, x) in out.iter_mut().zip(&x[16 * half..]) {
                // The product lies within +-127.00001, so that the conversion needs no care for other numbers.
                let rounded = (x * inverse).round_ties_even() as i32;
                *sum += rounded;
                *code = rounded as i8;
            }
        }
        let place = group % 2 * 4 + group / 2;
        coarse.scale[place] = scale;
        coarse.bias[place] = -128 * (sums[0] + sums[1]);
        coarse.sum[place] = scale * (sums[0] + sums[1]) as f32;
        for (half, sum) in sums.into_iter().enumerate() {
            let within = group % 4;
            let (at, place) = (group / 4, within % 2 * 4 + within / 2 * 2 + half);
            fine.scale[at][place] = scale;
            fine.bias[at][place] = -128 * sum;
            fine.sum[at][place] = scale * sum as f32;
        }
    }
}

/// The scale of a group, and what its numbers are multiplied by.
#[inline(always)]
fn scale_of(x: &[f32; 32]) -> (f32, f32) {
    // As integers, magnitudes order like numbers, with infinity and NaN on top.
    let max = x.iter().fold(0, |max: u32, x| max.max(x.to_bits() & 0x7FFF_FFFF));
    let max = f32::from_bits(max);
    if max.is_finite() {
        if max < 1e-30 { (0.0, 0.0) } else { (max / 127.0, 127.0 / max) }
    } else {
        (f32::NAN, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::{Rng, uniform};

    fn one_row(isa: Isa, x: &[f32]) -> Activations {
        let mut a = Activations::new(1, x.len(), Forms::BOTH);
        a.fill(isa, 0, x);
        a
    }

    #[test]
    fn orders_and_places_are_permutations() {
        let sorted = |mut v: Vec<usize>| {
            v.sort_unstable();
            v
        };
        assert_eq!(sorted((0..CHUNK).map(code_place).collect()), (0..CHUNK).collect::<Vec<_>>());
        assert_eq!(sorted(COARSE_ORDER.to_vec()), (0..8).collect::<Vec<_>>());
        assert_eq!(sorted(FINE_ORDER.to_vec()), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn codes_and_sums_are_as_documented() {
        for len in [32, 48, 256, 288, 1001] {
            let x = uniform(len as u64, len);
            let a = one_row(Isa::Scalar, &x);
            let row = a.row(0);
            for (g, x) in x.chunks(32).enumerate() {
                let max = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let (chunk, place) = (g / 8, COARSE_ORDER.iter().position(|&o| o == g % 8).unwrap());
                let code = |i: usize| row.codes[chunk].0[code_place(g % 8 * 32 + i)];
                let coarse = &row.coarse[chunk];
                assert_eq!(coarse.scale[place], max / 127.0);
                for (i, x) in x.iter().enumerate() {
                    assert_eq!(i32::from(code(i)), (x * (127.0 / max)).round_ties_even() as i32);
                }
                let sum: i32 = (0..32).map(|i| i32::from(code(i))).sum();
                assert_eq!(coarse.bias[place], -128 * sum);
                assert_eq!(coarse.sum[place], coarse.scale[place] * sum as f32);
                for half in 0..2 {
                    let sum: i32 = (0..16).map(|i| i32::from(code(16 * half + i))).sum();
                    let fine_group = 2 * (g % 8) + half;
                    let place = FINE_ORDER.iter().position(|&o| o == fine_group % 8).unwrap();
                    let fine = &row.fine[chunk];
                    assert_eq!(fine.bias[fine_group / 8][place], -128 * sum);
                    assert_eq!(fine.scale[fine_group / 8][place], max / 127.0);
                    assert_eq!(fine.sum[fine_group / 8][place], max / 127.0 * sum as f32);
                }
            }
        }
    }

    #[test]
    fn every_isa_rounds_alike() {
        let mut rng = Rng::new(7);
        let x: Vec<f32> = (0..1120).map(|_| rng.uniform() * f32::exp2(rng.below(60) as f32 - 30.0)).collect();
        let scalar = one_row(Isa::Scalar, &x);
        for isa in Isa::available() {
            let other = one_row(isa, &x);
            assert_eq!(format!("{:?}", other.row(0)), format!("{:?}", scalar.row(0)), "{isa}");
        }
    }

    #[test]
    fn tiny_and_broken_groups_are_safe() {
        for isa in Isa::available() {
            for (value, scale) in [(0.0, 0.0), (1e-38, 0.0), (f32::INFINITY, f32::NAN), (f32::NAN, f32::NAN)] {
                let mut x = [0.5f32; 64];
                x[3] = value;
                x[..3].fill(value);
                x[4..32].fill(value);
                let a = one_row(isa, &x);
                let row = a.row(0);
                assert_eq!(row.coarse[0].scale[0].to_bits(), f32::to_bits(scale), "{isa} {value}");
                assert!((0..32).all(|i| row.codes[0].0[code_place(i)] == 0), "{isa} {value}");
                assert_eq!(row.coarse[0].scale[4], 0.5 / 127.0);
            }
        }
    }
}
