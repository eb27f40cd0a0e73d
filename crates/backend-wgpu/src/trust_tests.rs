//! Drivers that make wrong code of a kernel: its text is changed on the way to them.

use crate::{
    Cache, GpuOptions, Tuning, common,
    device::Device,
    gpu::Gpu,
    selfcheck::Store,
    tape::Tape,
    tune::{MANY, Meter, Stopwatch, Tunable, Way},
};
use nibble_backend::{Activations, Backend, Error, KvType, Limits};
use nibble_backend_reference::Reference;
use nibble_graph::{Activation, Attention, Frequencies, Graph, KvLayer, Rope, RopeLayout, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::{TempDir, ops, uniform};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

const WIDTH: usize = 64;

/// A dense layer whose matrices are codes.
pub(crate) fn layer() -> Graph {
    let mut g = Graph::default();
    let mut seed = 20;
    let mut weight = |name: &str, dims: &[usize]| {
        seed += 1;
        let shape = Shape::new(dims).unwrap();
        let numbers: Vec<f32> = uniform(seed, shape.elements()).iter().map(|x| 0.3 * x).collect();
        let codec = codec(if dims.len() == 1 { "f32" } else { "q4_0" });
        Weight::new(name, Encoded::encode(name, shape, codec, &numbers, None).unwrap())
    };
    let frequencies = Frequencies::Fixed((0..16).map(|i| 0.7f32.powi(i)).collect());
    let rope = Rope { head_dim: 32, dims: 32, layout: RopeLayout::Split, frequencies, magnitude: 1.0 };
    let x = ops::rows(&mut g, "x", WIDTH).unwrap();
    let h = g.rms_norm(x, weight("norm", &[WIDTH]), 1e-5).unwrap();
    let [q, k, v] =
        [("q", 64), ("k", 32), ("v", 32)].map(|(name, n)| g.matmul(h, weight(name, &[n, WIDTH])).unwrap());
    let (q, k) = (g.rope(q, rope.clone()).unwrap(), g.rope(k, rope).unwrap());
    let cache = g.add_cache(KvLayer { kv_heads: 1, key_dim: 32, value_dim: 32 });
    let attention = Attention { cache, heads: 2, scale: 0.2, window: None, soft_cap: None };
    let h = g.attention(q, k, v, attention).unwrap();
    let h = g.matmul(h, weight("o", &[WIDTH, WIDTH])).unwrap();
    let x = g.add(x, h).unwrap();
    let h = g.rms_norm(x, weight("norm 2", &[WIDTH]), 1e-5).unwrap();
    let [gate, up] = ["gate", "up"].map(|name| g.matmul(h, weight(name, &[96, WIDTH])).unwrap());
    let h = g.gated(Activation::Silu, gate, up).unwrap();
    let h = g.matmul(h, weight("down", &[WIDTH, 96])).unwrap();
    let x = g.add(x, h).unwrap();
    g.output(x);
    g
}

pub(crate) fn limits() -> Limits {
    Limits { kv: KvType::F16, activations: Activations::Auto, check_finite: false, ..ops::limits(40) }
}

/// The layer on a device for one row, few and many.
fn agrees(gpu: &Gpu, what: &str) {
    agrees_on(gpu, &layer(), what);
}

fn agrees_on(gpu: &Gpu, graph: &Graph, what: &str) {
    let mut plan = gpu.compile(graph, &limits()).unwrap();
    for (counts, steps) in [([1, 0], 3), ([2, 1], 2), ([33, 5], 2)] {
        let expected = ops::run(&Reference, graph, counts, steps);
        let found = ops::run_plan(&mut *plan, graph, counts, steps);
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let largest = expected.iter().fold(1.0f32, |max, e| max.max(e.abs()));
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                let close = (f - e).abs() <= 0.03 * largest;
                assert!(close, "{what} {counts:?}: row {row}, column {i}: {f}, expected {e}");
            }
        }
    }
}

/// Of the kernels by matrices.
const MATRICES: [&str; 2] = ["coopMultiplyAdd(a0, b0, c0_0)", "c0_0"];
const REGISTERS: [&str; 2] = ["s00 += a0 * b0;", "s00 += a0 * b1;"];

/// Text that becomes another one on the way to the driver, and a part of the names of all kernels that it makes wrong.
type Spoilt = (&'static [[&'static str; 2]], &'static str);

/// Looks that each of these is left out, told of once, and replaced by something right.
fn replaced(cases: &[Spoilt]) {
    replaced_in(&layer(), cases);
}

fn replaced_in(graph: &Graph, cases: &[Spoilt]) {
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    for (spoilt, label) in cases {
        // One device, so that what is not spoilt is compiled once.
        let gpu = Gpu::on(Arc::clone(first.device()), GpuOptions::default(), Box::new(Stopwatch::default()));
        if spoilt[0] == MATRICES && gpu.device().caps.matrix.is_none() {
            continue;
        }
        *gpu.device().spoilt.lock().unwrap() = spoilt.to_vec();
        let warnings = gpu.prepare(graph, &limits()).unwrap();
        assert!(!warnings.is_empty() && warnings.iter().all(|w| w.contains(label)), "{label}: {warnings:?}");
        assert!(gpu.prepare(graph, &limits()).unwrap().is_empty(), "{label}");
        agrees_on(&gpu, graph, label);
    }
}

#[test]
fn wrong_products_of_rotated_rows_give_way_to_calls_of_their_own() {
    replaced_in(
        &common::tiles::product(),
        &[
            (&[["select(a + b, b - a, odd)", "select(a + b, a - b, odd)"]], "rotated"),
            (&[["y0[row * fours + n0] = v0_0", "y0[row * fours + n0] = -v0_0"]], "rotated back"),
        ],
    );
}

#[test]
fn wrong_products_of_many_rows_give_way_to_plainer_ones() {
    replaced(&[(&[MATRICES], "gemm 4 bits"), (&[MATRICES, REGISTERS], "gemm 4 bits")]);
}

#[test]
fn wrong_products_of_few_rows_give_way_to_plainer_ones() {
    replaced(&[
        // The second row of a kernel that takes four.
        (&[["select(a0_0, a0_1, asodd0)", "select(a0_0, a0_0, asodd0)"]], "x4"),
        // Integer products, in all kernels.
        (&[["x0_0[0]) + dot4I8Packed(", "x0_0[0]) - dot4I8Packed("]], "gemv 4 bits"),
        // Products that round for the next norm.
        (&[["half] = squares;", "half] = squares * 2.0;"]], "gemv 4 bits"),
    ]);
}

#[test]
fn wrong_norms_and_attention_give_way_to_plainer_ones() {
    replaced(&[
        (&[["total / f32(p.k)", "total * 2.0 / f32(p.k)"]], "rms_norm_codes"),
        (&[["total += weight[r] * stat[r].y", "total += stat[r].y"]], "attention_join"),
        // A sequence that is one run.
        (&[["= value / total_of[head * 16u]", "= value * total_of[head * 16u]"]], "attention"),
    ]);
}

#[test]
fn a_device_without_a_right_kernel_is_refused_by_name() {
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    let gpu = Gpu::on(Arc::clone(first.device()), GpuOptions::default(), Box::new(Stopwatch::default()));
    *gpu.device().spoilt.lock().unwrap() = vec![["y[e + 1u] = d0[1]", "y[e + 1u] = d0[0]"]];
    let error = gpu.compile(&layer(), &limits()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error}");
    assert!(error.to_string().contains("`embed`") && error.to_string().contains("--device cpu"), "{error}");
}

#[test]
fn the_next_start_knows_what_this_one_found_out() {
    let dir = TempDir::new("trust");
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    *first.device().spoilt.lock().unwrap() = vec![["total / f32(p.k)", "total * 2.0 / f32(p.k)"]];
    let start = |build: &str| {
        let cache = Some(Cache { folder: dir.path().into(), build: build.into() });
        let gpu = Gpu::on(
            Arc::clone(first.device()),
            GpuOptions { cache, tuning: Tuning::Off, ..GpuOptions::default() },
            Box::new(Stopwatch::default()),
        );
        let warnings = gpu.prepare(&layer(), &limits()).unwrap();
        agrees(&gpu, build);
        (gpu.tried(), warnings.len())
    };
    let (tried, warnings) = start("1");
    assert!(tried > 5 && warnings == 1, "{tried} kernels, {warnings} warnings");
    assert_eq!(start("1"), (0, 0), "all is known, what is wrong too");
    assert_eq!(start("2"), (tried, 1), "another build finds out for itself");
}

/// Costs that a test decides on.
struct Costs {
    /// By way.
    cost: fn(Way) -> f64,
    /// Kernels that there is time for, and those that were measured.
    time: Arc<AtomicUsize>,
    measured: Arc<AtomicUsize>,
}

impl Meter for Costs {
    fn has_time(&mut self) -> bool {
        self.time.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    fn costs(
        &mut self,
        _: &Device,
        _: &Tape,
        tunable: &Tunable,
        ways: &[usize],
    ) -> Result<Option<Vec<f64>>, Error> {
        self.measured.fetch_add(1, SeqCst);
        assert!(ways.len() > 1, "{}: nothing to choose", tunable.key);
        Ok(Some(ways.iter().map(|&way| (self.cost)(tunable.ways[way].0)).collect()))
    }
}

/// What a plan for so many rows computes in so many steps, bit by bit.
fn bits(gpu: &Gpu, rows: usize, steps: usize) -> Vec<Vec<u32>> {
    let graph = layer();
    let mut plan = gpu.compile(&graph, &Limits { rows, wanted: rows, ..limits() }).unwrap();
    let rows = ops::run_plan(&mut *plan, &graph, [rows, 0], steps);
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn the_cheapest_right_way_is_taken_and_kept_and_changes_no_bit() {
    let dir = TempDir::new("tune");
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    let measured = Arc::new(AtomicUsize::new(0));
    let start = |tuning, time: usize, cost| {
        measured.store(0, SeqCst);
        let cache = Some(Cache { folder: dir.path().into(), build: "1".into() });
        let (time, measured) = (Arc::new(AtomicUsize::new(time)), Arc::clone(&measured));
        let options = GpuOptions { cache, tuning, ..GpuOptions::default() };
        Gpu::on(Arc::clone(first.device()), options, Box::new(Costs { cost, time, measured }))
    };
    let ways = |gpu: &Gpu| -> Vec<Way> { gpu.trust().tuned().0.values().copied().collect() };
    let usual = bits(&first, 1, 3);

    let most: fn(Way) -> f64 = |[per_sub, ahead]| -((10 * per_sub + ahead) as f64);
    let least: fn(Way) -> f64 = |[per_sub, ahead]| (per_sub + 10 * ahead) as f64;
    // Time for two kernels, then for all.
    let gpu = start(Tuning::Again, 2, most);
    assert_eq!(bits(&gpu, 1, 3), usual);
    assert_eq!((ways(&gpu).len(), measured.load(SeqCst)), (2, 2));
    let gpu = start(Tuning::Auto, usize::MAX, most);
    if gpu.device().caps.software {
        assert!(!gpu.trust().tuned().1, "software is not measured unless one asks for it");
    }
    let gpu = start(Tuning::Again, usize::MAX, most);
    assert_eq!(bits(&gpu, 1, 3), usual);
    let all = measured.load(SeqCst);
    assert!(all > 3 && ways(&gpu).len() == all && ways(&gpu).contains(&[4, 4]), "{:?}", ways(&gpu));
    // Again finds other ways by other costs, and none of them changes a bit either.
    let gpu = start(Tuning::Again, usize::MAX, least);
    assert_eq!(bits(&gpu, 1, 3), usual);
    assert_eq!((ways(&gpu), measured.load(SeqCst)), (vec![[1, 1]; all], all));
    // What is kept is taken as it is.
    let cache = Cache { folder: dir.path().into(), build: "1".into() };
    let device = first.device();
    let kept = Store::open(Some(&cache), &device.name, &device.driver);
    assert_eq!(kept.tuned().values().copied().collect::<Vec<_>>(), vec![[1, 1]; all]);
    let gpu = start(Tuning::Off, usize::MAX, most);
    assert_eq!(bits(&gpu, 1, 3), usual);
    assert_eq!((ways(&gpu).len(), measured.load(SeqCst)), (0, 0));
    let options = GpuOptions { strict: true, tuning: Tuning::Again, ..GpuOptions::default() };
    let gpu = Gpu::on(Arc::clone(device), options, Box::new(Stopwatch::default()));
    assert!(!gpu.trust().tuned().1, "strict plans are not tuned");
}

#[test]
fn tiles_of_prompts_are_tuned_and_change_no_bit() {
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    let usual = bits(&first, 40, 1);
    // Of tiles the lowest, of kernels for few rows the usual one.
    let cost = |[height, _]: Way| if height > 4 { height as f64 } else { 0.0 };
    let (time, measured) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
    let options = GpuOptions { tuning: Tuning::Again, ..GpuOptions::default() };
    let gpu = Gpu::on(Arc::clone(first.device()), options, Box::new(Costs { cost, time, measured }));
    assert_eq!(bits(&gpu, 40, 1), usual);
    let trust = gpu.trust();
    let of_many: Vec<_> = trust.tuned().0.iter().filter(|(key, _)| key.contains(MANY)).collect();
    assert!(of_many.len() > 3, "{of_many:?}");
    assert!(of_many.iter().all(|(_, [height, _])| *height <= 32), "{of_many:?}");
    let heights = |gpu: &Gpu| -> Vec<String> {
        let tape = gpu.tape(&layer(), &Limits { rows: 40, wanted: 40, ..limits() }, &[]).unwrap();
        let calls = tape.entries.iter().flat_map(|entry| &entry.variants).flat_map(|v| &v.calls);
        calls.map(|call| call.shader.label.clone()).filter(|label| label.starts_with("gemm")).collect()
    };
    drop(trust);
    // What was found is what plans take; software is measured only when asked, so another start is not looked at.
    assert_ne!(heights(&gpu), heights(&first));
}

/// Whatever the clock says.
#[test]
fn what_a_clock_finds_changes_no_bit() {
    let Some(first) = common::gpu(GpuOptions::default()) else { return };
    let options = GpuOptions { tuning: Tuning::Again, ..GpuOptions::default() };
    let gpu = Gpu::on(Arc::clone(first.device()), options, Box::new(Stopwatch::default()));
    assert_eq!(bits(&gpu, 40, 1), bits(&first, 40, 1));
    assert!(!gpu.trust().tuned().0.is_empty());
}
