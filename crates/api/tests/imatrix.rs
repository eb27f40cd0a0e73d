//! `Importance`: sums of squares of what goes into each matrix, and that `quantize` takes them.

use nibble_api::{Activations, Importance, KvType, Model, Options, QuantizeOptions, Registry, quantize};
use nibble_testkit::{TempDir, golden, workspace_root};
use std::{collections::HashMap, ops::ControlFlow, path::Path};

fn options() -> Options {
    Options {
        device: "cpu".into(),
        threads: Some(2),
        kv: KvType::F32,
        activations: Activations::F32,
        context: Some(40),
        ..Options::default()
    }
}

fn model(path: &Path) -> Model {
    Model::open(path, &Registry::default()).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * 7 % 250).collect()
}

fn go_on(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The inputs of products that norms made, seen as what the norms' weights made.
#[test]
fn sums_are_those_of_the_values_themselves() {
    let model = model(&workspace_root().join("golden/models/llama"));
    let found = Importance::measure(&model, &tokens(95), None, &options(), &mut go_on).unwrap();
    assert_eq!((found.chunks, found.chunk_len), (2, 40));
    let mut graph = model.graph.clone();
    let taps = graph.tap();
    let mut sums: HashMap<&str, Vec<f64>> = HashMap::new();
    let options = Options { prefill_chunk: Some(64), wanted: 64, ..options() };
    let mut engine = model.start_graph(&graph, &options).unwrap();
    for chunk in tokens(95).chunks_exact(40) {
        let mut chunk = chunk.to_vec();
        chunk[0] = model.leading_token().unwrap_or(chunk[0]);
        let add = |output: usize, _, numbers: &[f32]| {
            let Some(tap) = output.checked_sub(1).map(|tap| &taps[tap]) else { return };
            let sums = sums.entry(&tap.name).or_insert_with(|| vec![0.0; numbers.len()]);
            sums.iter_mut().zip(numbers).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
        };
        engine.outputs(&chunk, add).unwrap();
    }
    let mut compared = 0;
    for (layer, part) in (0..model.config.layers).flat_map(|l| [(l, "attn"), (l, "ffn")]) {
        let expected = &sums[format!("layer.{layer}.{part}.norm").as_str()];
        let names: &[&str] =
            if part == "attn" { &["attn_q", "attn_k", "attn_v"] } else { &["ffn_gate", "ffn_up"] };
        for name in names {
            let inputs = &found.inputs[&format!("blk.{layer}.{name}.weight")];
            assert_eq!((&inputs.squares, &inputs.counts[..]), (expected, &[80][..]), "{layer} {name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5 * model.config.layers);
    assert!(!found.inputs.keys().any(|name| name.starts_with("output") || name.starts_with("token_embd")));
}

#[test]
fn experts_count_the_rows_that_went_to_them() {
    for folder in golden::models() {
        let model = model(&folder);
        let found = Importance::measure(&model, &tokens(40), None, &options(), &mut go_on).unwrap();
        let names = found.inputs.keys().filter(|name| name.contains("_exps"));
        let mut routed = 0;
        for name in names {
            let inputs = &found.inputs[name];
            let used = inputs.counts.iter().sum::<u64>();
            assert!(inputs.counts.len() > 1 && used.is_multiple_of(40) && used >= 40, "{name}: {used}");
            let columns = inputs.squares.len() / inputs.counts.len();
            for (sums, &count) in inputs.squares.chunks_exact(columns).zip(&inputs.counts) {
                assert_eq!(sums.iter().any(|&sum| sum > 0.0), count > 0, "{name}");
            }
            routed += 1;
        }
        let is_moe = model.config.experts.is_some();
        assert_eq!(routed > 0, is_moe, "{}", folder.display());
        assert!(found.inputs.values().all(|i| i.squares.iter().all(|sum| sum.is_finite())));
    }
}

#[test]
fn what_is_written_is_what_quantize_reads() {
    let folder = TempDir::new("imatrix");
    let source = workspace_root().join("golden/models/llama");
    let found = Importance::measure(&model(&source), &tokens(40), Some(1), &options(), &mut go_on).unwrap();
    let file = folder.path().join("imatrix.gguf");
    found.write(&file, "some text").unwrap();
    let write = |name: &str, imatrix| {
        let output = folder.path().join(name);
        let options = QuantizeOptions { imatrix, ..QuantizeOptions::encoding("q4_0") };
        let done =
            quantize(&source, &output, &options, &Registry::default(), &mut |_| ControlFlow::Continue(()));
        (done.unwrap(), std::fs::read(output).unwrap())
    };
    let ((plain, without), (summary, with)) = (write("a.gguf", None), write("b.gguf", Some(file)));
    assert!(without.len() == with.len() && without != with, "column weights change what is rounded");
    let about = |s: &nibble_api::Summary| {
        s.warnings.iter().filter(|w| w.contains("no weights")).cloned().collect::<Vec<_>>()
    };
    assert!(about(&plain).is_empty());
    // Only the embedding and the output have none.
    assert!(
        about(&summary).iter().all(|w| w.contains("no weights for 1 ") || w.contains("no weights for 2 ")),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn a_short_text_and_a_stop_are_said() {
    let model = model(&workspace_root().join("golden/models/llama"));
    let error = Importance::measure(&model, &tokens(39), None, &options(), &mut go_on).unwrap_err();
    assert!(error.to_string().contains("expected at least a chunk of 40 tokens, found 39"), "{error}");
    let stop = &mut |_, _| ControlFlow::Break(());
    let error = Importance::measure(&model, &tokens(80), None, &options(), stop).unwrap_err();
    assert!(error.to_string().contains("stopped after 1 chunks"), "{error}");
}
