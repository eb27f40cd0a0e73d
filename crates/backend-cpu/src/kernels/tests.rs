//! Every codec on every instruction set of this machine, against the scalar twin, and the twin against plain arithmetic.

use super::*;
use nibble_quant::{CODECS, Codec, Kind, Spec, Unpacked, families};
use nibble_testkit::Rng;

/// Rows of encoded weights: written by the codec's encoder, or random bytes that decode to reasonable numbers.
fn weights(codec: &'static dyn Codec, rows: usize, row_len: usize, seed: u64) -> Vec<u8> {
    let spec = codec.spec();
    let mut rng = Rng::new(seed);
    let blocks = rows * row_len / spec.block_len;
    if let Some(encoder) = codec.encoder() {
        let x: Vec<f32> = (0..rows * row_len).map(|_| rng.uniform()).collect();
        let mut out = vec![0; blocks * spec.block_bytes];
        encoder.encode_row(&x, None, &mut out);
        return out;
    }
    let mut out = Vec::with_capacity(blocks * spec.block_bytes);
    let mut decoded = vec![0.0; spec.block_len];
    while out.len() < blocks * spec.block_bytes {
        let block: Vec<u8> = (0..spec.block_bytes).map(|_| rng.bits() as u8).collect();
        codec.decode(&block, &mut decoded);
        if decoded.iter().all(|x| x.abs() < 1e4) {
            out.extend(block);
        }
    }
    out
}

struct Case {
    codec: &'static dyn Codec,
    exact: bool,
    rows: usize,
    row_len: usize,
    bytes: Vec<u8>,
}

impl Case {
    fn new(codec: &'static dyn Codec, exact: bool, rows: usize, groups: usize) -> Self {
        let row_len = (groups * 32).next_multiple_of(codec.spec().block_len / codec.rows());
        let rows = rows.next_multiple_of(codec.rows());
        let bytes = weights(codec, rows, row_len, (rows + groups) as u64);
        Self { codec, exact, rows, row_len, bytes }
    }

    fn activations(&self, isa: Isa, x: &[f32]) -> Activations {
        let rows = x.len().checked_div(self.row_len).unwrap_or(1);
        let mut a = Activations::new(rows, self.row_len, Forms::ALL);
        for t in 0..rows {
            a.fill(isa, t, &x[t * self.row_len..(t + 1) * self.row_len]);
        }
        a
    }

    /// The matrix as `kernel` reads it.
    fn matrix(&self, kernel: &Kernel) -> Vec<u8> {
        let file = Matrix { bytes: &self.bytes, rows: self.rows, row_len: self.row_len };
        let Some(len) = kernel.strips_len(self.rows, self.row_len) else { return self.bytes.clone() };
        let mut strips = vec![0xAA; len];
        let strip = len / self.rows.div_ceil(STRIP_ROWS).max(1);
        if strip > 0 {
            strips.chunks_exact_mut(strip).enumerate().for_each(|(i, to)| kernel.write_strip(file, i, to));
        }
        strips
    }

    /// `[T, rows]`, computed in row ranges that end at `cuts`, or at the next strip.
    fn product(&self, isa: Isa, a: &Activations, cuts: &[usize]) -> Vec<f32> {
        let guard = 7.5;
        let mut y = vec![guard; a.rows() * self.rows + 16];
        let kernel = Kernel::pick(isa, self.codec, self.exact);
        let mut scratch = Scratch::new(self.row_len);
        let bytes = self.matrix(&kernel);
        let matrix = Matrix { bytes: &bytes, rows: self.rows, row_len: self.row_len };
        let unit = if kernel.strips_len(self.rows, self.row_len).is_some() { STRIP_ROWS } else { 1 };
        let mut from = 0;
        for &cut in cuts.iter().chain([&self.rows]) {
            let cut = cut.next_multiple_of(unit).min(self.rows);
            let len = a.rows() * self.rows;
            let out = Output::new(&mut y[..len], self.rows);
            kernel.run(matrix, from..cut, Input::rows(a, 0..a.rows()), out, &mut scratch);
            from = cut;
        }
        assert!(y.split_off(a.rows() * self.rows).iter().all(|&g| g == guard), "guards");
        y
    }
}

fn modes(codec: &'static dyn Codec) -> Vec<bool> {
    if codec.kind() == Kind::Float { vec![true] } else { vec![false, true] }
}

fn input(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.uniform() * (1.0 + rng.uniform())).collect()
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

fn check(codec: &'static dyn Codec, exact: bool, rows: usize, groups: usize, tokens: usize) {
    let case = Case::new(codec, exact, rows, groups);
    let rows = case.rows;
    let x = input(tokens as u64, tokens * case.row_len);
    let a = case.activations(Isa::Scalar, &x);
    let expected = case.product(Isa::Scalar, &a, &[]);
    let mut rng = Rng::new(groups as u64);
    for isa in Isa::with_lesser().into_iter().skip(1) {
        let mut cuts = vec![rng.below(rows + 1), rng.below(rows + 1)];
        cuts.sort_unstable();
        let found = case.product(isa, &a, &cuts);
        let name = codec.spec().name;
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{name} on {isa}, exact {exact}, {groups} groups, token {}, row {}: {found} and {expected}",
                i / rows,
                i % rows
            );
        }
    }
}

#[test]
fn every_codec_equals_its_twin_at_any_length() {
    for &codec in CODECS {
        for exact in modes(codec) {
            for groups in [0, 1, 2, 8, 9, 127] {
                check(codec, exact, 5, groups, 3);
            }
        }
    }
}

#[test]
fn families_with_kernels_equal_their_twins() {
    let own = own_kernels();
    for codec in families().filter(|codec| own.contains(&codec.spec().name)) {
        for (rows, groups, tokens) in [(5, 9, 1), (19, 4, 3), (37, 17, 5), (33, 20, 34)] {
            check(codec, false, rows, groups, tokens);
            if codec.kind() == Kind::Float {
                check(codec, true, rows, groups, tokens);
            }
        }
    }
}

#[test]
fn every_codec_equals_its_twin_for_any_number_of_activation_rows() {
    for &codec in CODECS {
        for exact in modes(codec) {
            for tokens in [1, 2, 5, 8, 9, 16, 33] {
                check(codec, exact, 19, 17, tokens);
            }
        }
    }
    check(CODECS[0], false, 37, 9, 129);
}

#[test]
fn every_number_of_outputs_is_right_and_guards_stay() {
    for &codec in CODECS {
        for exact in modes(codec) {
            for rows in [1, 2, 3, 5, 7, 31, 33] {
                check(codec, exact, rows, 8, 1);
                check(codec, exact, rows, 8, 13);
            }
        }
    }
    check(nibble_quant::codec("q4_0"), false, 1001, 3, 1);
}

/// A codec under a name that no kernel knows.
struct Renamed(&'static dyn Codec, &'static Spec);

impl Codec for Renamed {
    fn spec(&self) -> &'static Spec {
        self.1
    }

    fn kind(&self) -> Kind {
        self.0.kind()
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        self.0.decode(block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        self.0.unpack(block, out);
    }
}

#[test]
fn a_codec_without_kernels_of_its_own_equals_the_one_with_them() {
    for &codec in CODECS.iter().filter(|codec| codec.kind() != Kind::Float) {
        // A test may leak a few bytes.
        let spec = Box::leak(Box::new(Spec { name: "unknown", ..*codec.spec() }));
        let renamed: &'static Renamed = Box::leak(Box::new(Renamed(codec, spec)));
        let mut case = Case::new(codec, false, 5, 9);
        for tokens in [1, 5, 17] {
            let x = input(tokens as u64, tokens * case.row_len);
            case.codec = codec;
            let expected = case.product(Isa::Scalar, &case.activations(Isa::Scalar, &x), &[]);
            case.codec = renamed;
            for isa in Isa::with_lesser() {
                let found = case.product(isa, &case.activations(isa, &x), &[2]);
                assert_eq!(bits(&found), bits(&expected), "{} on {isa}", codec.spec().name);
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_among_others() {
    for &codec in CODECS {
        for isa in Isa::with_lesser() {
            for exact in modes(codec) {
                let case = Case::new(codec, exact, 21, 10);
                let x = input(3, 17 * case.row_len);
                let together = case.product(isa, &case.activations(isa, &x), &[9]);
                for t in [0, 7, 16] {
                    let one = &x[t * case.row_len..(t + 1) * case.row_len];
                    let alone = case.product(isa, &case.activations(isa, one), &[]);
                    let name = codec.spec().name;
                    assert_eq!(bits(&alone), bits(&together[t * 21..(t + 1) * 21]), "{name} on {isa}");
                }
            }
        }
    }
}

#[test]
fn many_rows_may_begin_and_end_anywhere_among_all() {
    // Formats with biased and plain codes, with offsets, with groups of 16, and by strips.
    for name in ["q4_0", "q4_1", "iq4_xs", "q3_k", "q6_k", "q2_k", "tq1_0"] {
        let case = Case::new(nibble_quant::codec(name), false, 37, 17);
        let x = input(5, 70 * case.row_len);
        let a = case.activations(Isa::Scalar, &x);
        let expected = case.product(Isa::Scalar, &a, &[]);
        for isa in Isa::with_lesser() {
            for rows in [0..33, 3..70, 16..64, 20..55] {
                let mut y = vec![0.0; rows.len() * 37];
                let kernel = Kernel::pick(isa, case.codec, false);
                let bytes = case.matrix(&kernel);
                let matrix = Matrix { bytes: &bytes, rows: 37, row_len: case.row_len };
                let mut scratch = Scratch::new(case.row_len);
                let out = Output::new(&mut y, 37);
                kernel.run(matrix, 0..37, Input::rows(&a, rows.clone()), out, &mut scratch);
                assert_eq!(bits(&y), bits(&expected[rows.start * 37..rows.end * 37]), "{name} on {isa}");
            }
        }
    }
}

#[test]
fn picked_rows_go_where_they_are_sent() {
    for isa in Isa::with_lesser() {
        for count in [3, 14] {
            let case = Case::new(nibble_quant::codec("q8_0"), false, 20, 4);
            let a = case.activations(isa, &input(9, 16 * case.row_len));
            let all = case.product(isa, &a, &[]);
            let picked: Vec<u32> = (0..count).map(|i| (i * 7 + 2) % 16).collect();
            let sent: Vec<u32> = (0..count).map(|i| count - 1 - i).collect();
            let mut y = vec![0.0; picked.len() * 20];
            let kernel = Kernel::pick(isa, case.codec, false);
            let out = Output::new(&mut y, 20).scattered(&sent);
            let matrix = Matrix { bytes: &case.bytes, rows: 20, row_len: case.row_len };
            kernel.run(matrix, 0..20, Input::picked(&a, &picked), out, &mut Scratch::new(case.row_len));
            for (from, to) in picked.iter().zip(&sent) {
                let (from, to) = (*from as usize * 20, *to as usize * 20);
                assert_eq!(bits(&y[to..to + 20]), bits(&all[from..from + 20]), "{isa}");
            }
        }
    }
}

#[test]
fn picked_pairs_are_two_rows_half_of_all_apart() {
    for isa in Isa::with_lesser() {
        for count in [1, 3, 14] {
            let case = Case::new(nibble_quant::codec("q4_0"), false, 20, 4);
            let a = case.activations(isa, &input(9, 32 * case.row_len));
            let all = case.product(isa, &a, &[]);
            let picked: Vec<u32> = (0..count).map(|i| (i * 7 + 2) % 16).collect();
            let sent: Vec<u32> = (0..count).map(|i| 2 * i).collect();
            let half = 2 * picked.len() * 20;
            let mut y = vec![0.0; 2 * half];
            let kernel = Kernel::pick(isa, case.codec, false);
            let out = Output::new(&mut y, 20).scattered(&sent);
            let matrix = Matrix { bytes: &case.bytes, rows: 20, row_len: case.row_len };
            let x = Input::picked_pairs(&a, &picked);
            kernel.run(matrix, 0..20, x, out, &mut Scratch::new(case.row_len));
            for (from, to) in picked.iter().zip(&sent) {
                let (from, to) = (*from as usize * 20, *to as usize * 20);
                assert_eq!(bits(&y[to..to + 20]), bits(&all[from..from + 20]), "{isa}");
                let (from, to) = (from + 16 * 20, to + half);
                assert_eq!(bits(&y[to..to + 20]), bits(&all[from..from + 20]), "{isa}: second half");
            }
        }
    }
}

#[test]
fn the_twin_is_the_product_of_decoded_numbers() {
    for &codec in CODECS {
        for exact in modes(codec) {
            let case = Case::new(codec, exact, 9, 12);
            let x = input(5, 2 * case.row_len);
            let a = case.activations(Isa::Scalar, &x);
            let y = case.product(Isa::Scalar, &a, &[]);
            let mut w = vec![0.0; case.row_len];
            let row_bytes = case.bytes.len() / 9;
            for n in 0..9 {
                codec.decode_row(&case.bytes[n * row_bytes..(n + 1) * row_bytes], &mut w);
                for t in 0..2 {
                    let x = seen(&a, t, exact);
                    let (mut sum, mut size) = (0.0, 0.0);
                    for (w, x) in w.iter().zip(&x) {
                        sum += f64::from(*w) * x;
                        size += (f64::from(*w) * x).abs();
                    }
                    let found = f64::from(y[t * 9 + n]);
                    let name = codec.spec().name;
                    assert!((found - sum).abs() <= 1e-6 * size + 1e-30, "{name}: {found} for {sum}");
                }
            }
        }
    }
}

/// The numbers that a row of activations stands for.
fn seen(a: &Activations, t: usize, exact: bool) -> Vec<f64> {
    let row = a.row(t);
    if exact {
        return row.floats.iter().map(|&x| f64::from(x)).collect();
    }
    let place = |g: usize| activations::COARSE_ORDER.iter().position(|&o| o == g).unwrap();
    let scale = |k: usize| row.coarse[k / 256].scale[place(k / 32 % 8)];
    (0..a.row_len()).map(|k| f64::from(row.code(k)) * f64::from(scale(k))).collect()
}

#[test]
fn a_scale_of_the_next_row_does_not_reach_this_one() {
    let short = |codec: &&&dyn Codec| codec.kind() != Kind::Float && codec.spec().block_len <= 128;
    for codec in CODECS.iter().filter(short) {
        let mut case = Case::new(*codec, false, 4, 9);
        let row = case.row_len / codec.spec().block_len * codec.spec().block_bytes;
        case.bytes[row..].fill(0xFF);
        let x = input(5, 3 * case.row_len);
        for isa in Isa::with_lesser() {
            let y = case.product(isa, &case.activations(isa, &x), &[]);
            let twin = case.product(Isa::Scalar, &case.activations(Isa::Scalar, &x), &[]);
            for t in 0..3 {
                let (found, expected) = (y[t * case.rows], twin[t * case.rows]);
                assert!(found.is_finite(), "{} on {}", codec.spec().name, isa.name());
                assert_eq!(found.to_bits(), expected.to_bits(), "{} on {}", codec.spec().name, isa.name());
            }
        }
    }
}
