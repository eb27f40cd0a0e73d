//! Products and embeddings of every encoding against the reference backend.

mod common;

use common::{
    gpu,
    tiles::{layers, tiles},
};
use nibble_backend::{Activations, Backend, Limits, Sequence, Step};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::{Gpu, GpuOptions};
use nibble_graph::{Graph, Weight};
use nibble_quant::{CODECS, Codec, Encoded, exl3::EXL3, f8_scaled::Layout};
use nibble_tensor::Shape;
use nibble_testkit::{
    Rng,
    ops::{limits, rows, run_plan},
};

/// Two blocks a row at least, of a length that 32 does not divide where the encoding allows it.
fn row_len(codec: &dyn Codec) -> usize {
    match codec.spec().block_len {
        1 => 72,
        len => len.max(32) * 3,
    }
}

/// Numbers that a model may hold: what is staged in half precision keeps its digits only there.
const SIZES: std::ops::Range<f32> = 1e-3..1e4;

/// A matrix of numbers around 1 in that encoding; if it cannot be written, of random bytes that mean [`SIZES`].
fn matrix(name: &str, codec: &'static dyn Codec, n: usize, k: usize, seed: u64) -> Weight {
    let mut rng = Rng::new(seed);
    let shape = Shape::from([n, k]);
    let encoded = match codec.encoder() {
        Some(_) => {
            let numbers: Vec<f32> = (0..n * k).map(|_| rng.uniform()).collect();
            Encoded::encode(name, shape, codec, &numbers, None)
        }
        None => {
            let len = nibble_quant::byte_len(&shape, codec).unwrap();
            // Small bytes, or those where the exponents of `mxfp8` are around 0.
            let mut tries = [(0, 60), (112, 15)].into_iter().map(|(first, count)| -> Vec<u8> {
                (0..len).map(|_| first + rng.below(count) as u8).collect()
            });
            let bytes =
                tries.find(|bytes| SIZES.contains(&largest(codec, bytes))).expect("bytes of that size");
            Encoded::new(name, shape, codec, bytes.into())
        }
    };
    Weight::new(name, encoded.unwrap())
}

/// The largest number that the blocks hold.
fn largest(codec: &dyn Codec, bytes: &[u8]) -> f32 {
    let mut numbers = vec![0.0; codec.spec().block_len];
    bytes.chunks_exact(codec.spec().block_bytes).fold(0.0, |most, block| {
        codec.decode(block, &mut numbers);
        numbers.iter().fold(most, |most: f32, x| most.max(x.abs()))
    })
}

/// A product of random rows, and rows of a table.
fn graph([matrix, table]: [Weight; 2]) -> Graph {
    let mut g = Graph::default();
    let x = rows(&mut g, "x", matrix.data.shape().row_len()).unwrap();
    let y = g.matmul(x, matrix).unwrap();
    g.output(y);
    let tokens = g.tokens().unwrap();
    let table = g.embed(tokens, table).unwrap();
    g.output(table);
    g
}

/// The largest difference in a row, in units of the largest number of all rows of that length.
fn difference(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let mut worst = 0f32;
    for width in [expected[0].len(), expected[expected.len() - 1].len()] {
        let of = |rows: &[Vec<f32>]| -> Vec<f32> {
            rows.iter().filter(|r| r.len() == width).flatten().copied().collect()
        };
        let (found, expected) = (of(found), of(expected));
        let largest = expected.iter().fold(1e-30f32, |m, e| m.max(e.abs()));
        let most = found.iter().zip(&expected).fold(0f32, |m, (f, e)| m.max((f - e).abs()));
        assert!(most.is_finite());
        worst = worst.max(most / largest);
    }
    worst
}

/// Compares steps of few and of many rows with the reference backend.
fn compare(gpu: &Gpu, name: &str, graph: &Graph) {
    let plain = Limits { check_finite: false, ..limits(129) };
    let mut exact = gpu.compile(graph, &plain).unwrap();
    let auto = Limits { activations: Activations::Auto, ..plain };
    assert_eq!(gpu.prepare(graph, &auto), Ok(vec![]), "{name}: a kernel is wrong");
    let mut fast = gpu.compile(graph, &auto).unwrap();
    for counts in [[1, 0], [2, 1], [3, 5], [100, 29]] {
        let mut reference = Reference.compile(graph, &limits(129)).unwrap();
        let expected = run_plan(&mut *reference, graph, counts, 1);
        let exactly = difference(&run_plan(&mut *exact, graph, counts, 1), &expected);
        assert!(exactly < 2e-3, "{name} {counts:?}: {exactly}");
        let roughly = difference(&run_plan(&mut *fast, graph, counts, 1), &expected);
        assert!(roughly < 0.02, "{name} {counts:?}: {roughly} with rounded inputs");
        eprintln!("{name} {counts:?}: {exactly:.1e}, {roughly:.1e}");
    }
}

#[test]
fn every_encoding_multiplies_and_embeds_as_the_reference() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for &codec in CODECS {
        let k = row_len(codec);
        let weights = [("w", 70), ("table", 300)].map(|(name, n)| matrix(name, codec, n, k, n as u64));
        compare(&gpu, codec.spec().name, &graph(weights));
    }
}

#[test]
fn trellises_multiply_and_embed_as_the_reference() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for codec in EXL3.iter().enumerate().filter(|(i, codec)| i % 3 == codec.bits % 3).map(|(_, codec)| codec)
    {
        let weights = [("w", 80), ("table", 304)].map(|(name, n)| tiles(name, codec, [n, 96], n as u64));
        compare(&gpu, codec.spec().name, &graph(weights));
    }
}

/// Few rows and many: for few, products make their input themselves.
#[test]
fn rotated_layers_are_those_of_the_reference() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    compare(&gpu, "rotated", &layers(1, 2304, false));
    compare(&gpu, "rotated and normed", &layers(1, 256, true));
}

/// The rows of a table of 128 rows are those of its codec, bit for bit.
fn same_rows(gpu: &Gpu, table: Weight) {
    let (name, numbers) = (table.data.codec().spec().name, table.data.decode());
    let width = table.data.shape().row_len();
    let mut g = Graph::default();
    let tokens = g.tokens().unwrap();
    let x = g.embed(tokens, table).unwrap();
    g.output(x);
    let mut plan = gpu.compile(&g, &limits(128)).unwrap();
    let (tokens, positions) = ((0..128).collect::<Vec<_>>(), (0..128).collect::<Vec<_>>());
    let (sequences, wanted) = ([Sequence { pages: &[0, 1], prompt_len: 128, state: 0 }], [127]);
    let step = Step {
        tokens: &tokens,
        positions: &positions,
        sequence: &[0; 128],
        sequences: &sequences,
        wanted: &wanted,
    };
    plan.run(&step).unwrap();
    for (token, expected) in numbers.chunks_exact(width).enumerate() {
        let mut found = vec![0.0; width];
        plan.read(0, token, &mut found).unwrap();
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(expected), "{name} row {token}");
    }
}

/// Nearly two thirds of the states of each codebook.
#[test]
fn numbers_of_states_are_those_of_the_codec_bit_for_bit() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for codec in EXL3 {
        same_rows(&gpu, tiles("table", codec, [128, 512], 3));
    }
}

/// All bytes, under scales of single precision and powers of two.
#[test]
fn eight_bit_floats_are_those_of_the_codec_bit_for_bit() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for (codec, layout) in CODECS.iter().filter_map(|&codec| Some((codec, Layout::of(codec)?))) {
        let spec = codec.spec();
        let (width, mut rng) = (256, Rng::new(7));
        let mut numbers = (0..=255u8).filter(|&byte| layout.is_number(byte)).cycle();
        let mut bytes = vec![];
        for _ in 0..128 * width / spec.block_len {
            match layout.lead {
                1 => bytes.push(100 + rng.below(40) as u8),
                lead => bytes.extend(&(rng.uniform() * 1e-3).to_le_bytes()[..lead]),
            }
            bytes.extend(numbers.by_ref().take(spec.block_len));
        }
        let data = Encoded::new("table", Shape::from([128, width]), codec, bytes.into()).unwrap();
        same_rows(&gpu, Weight::new("table", data));
    }
}
