//! A model says the same after `quantize` has put it into another container, and nearly the same in fewer bits.

use nibble_api::{Activations, EncodeOptions, KvType, Model, Options, QuantizeOptions, Registry, quantize};
use nibble_testkit::{golden, workspace_root};
use std::{fs, ops::ControlFlow, path::Path};

fn written(model: &Path, to: &str, use_it: impl FnOnce(&Path)) {
    let name =
        format!("nibble-answers-{to}-{}-{}.gguf", model.file_name().unwrap().display(), std::process::id());
    let output = std::env::temp_dir().join(name);
    let options = QuantizeOptions { force: true, ..QuantizeOptions::encoding(to) };
    let mut go_on = |_: nibble_api::Progress<'_>| ControlFlow::Continue(());
    quantize(model, &output, &options, &Registry::default(), &mut go_on).unwrap();
    use_it(&output);
    fs::remove_file(&output).unwrap();
}

fn open(path: &Path) -> Model {
    Model::open(path, &Registry::default()).unwrap()
}

/// The logits of 40 tokens, past every window and rotary scaling of these models.
fn logits(model: &Model) -> Vec<f32> {
    let tokens: Vec<u32> = (0..40).map(|i| 3 + i * 7 % 250).collect();
    let options = Options {
        device: "cpu".into(),
        activations: Activations::F32,
        kv: KvType::F32,
        context: Some(64),
        wanted: 8,
        ..Options::default()
    };
    let mut all = vec![];
    model.start(&options).unwrap().score(&tokens, |_, row| all.extend_from_slice(row)).unwrap();
    all
}

fn rms(numbers: impl Iterator<Item = f32>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, n), x| (sum + f64::from(x).powi(2), n + 1));
    (sum / f64::from(count)).sqrt()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    rms(a.iter().zip(b).map(|(a, b)| a - b)) / rms(a.iter().copied())
}

#[test]
fn another_container_changes_no_answer() {
    for path in golden::models() {
        let before = open(&path);
        written(&path, "f32", |output| {
            let after = open(output);
            let distance = distance(&logits(&before), &logits(&after));
            assert!(distance < 1e-5, "{}: {distance:e}", path.display());
            let (before, after) = (before.tokenizer().unwrap(), after.tokenizer().unwrap());
            for text in
                ["", "Once upon a time, 12 foxes\n\n didn't  sleep.", "naïve <|im_end|> 狐狸", " \t x"]
            {
                for options in [EncodeOptions::PROMPT, EncodeOptions::TEXT] {
                    let ids = before.encode(text, options);
                    assert_eq!(after.encode(text, options), ids, "{}: {text:?}", path.display());
                }
            }
            assert_eq!(after.end_tokens(), before.end_tokens(), "{}", path.display());
        });
    }
}

#[test]
fn fewer_bits_change_answers_little() {
    let path = workspace_root().join("golden/models/qwen3");
    let before = logits(&open(&path));
    let mut last = 0.0;
    for (to, most) in [("q8_0", 0.05), ("q5_0", 0.4), ("q4_0", 0.8)] {
        written(&path, to, |output| {
            let distance = distance(&before, &logits(&open(output)));
            assert!(distance > last && distance < most, "{to}: {distance}");
            last = distance;
        });
    }
}
