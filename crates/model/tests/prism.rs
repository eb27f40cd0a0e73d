//! A model whose matrices are stored rotated, with Prism's keys, computes what it computes without.

use nibble_backend::{Backend, KvType};
use nibble_backend_reference::{Reference, hadamard};
use nibble_format::{
    OpenOptions, Value,
    gguf::{Entry, WriteTensor, open_files, write},
};
use nibble_quant::{Registry, codec};
use nibble_testkit::{
    TempDir,
    runner::{Runner, limits},
    tiny, uniform,
};
use std::path::Path;

const BLOCK: usize = 64;

fn sign(width: usize) -> Vec<f32> {
    uniform(width as u64, width).into_iter().map(f32::signum).collect()
}

/// The keys of a contract: signs for both widths.
fn keys(weights: &[String], tied: bool) -> Vec<Entry> {
    let signs = [256, 512].map(sign).concat().into_iter().map(|s| s as i64).collect::<Vec<_>>();
    let key = |name: &str, value: Value| Entry::new(format!("prism.hadamard.{name}"), value);
    vec![
        key("version", if tied { 2u32 } else { 1 }.into()),
        key("block_size", (BLOCK as u32).into()),
        key("transform", "normalized-sylvester-walsh-hadamard".into()),
        key("axis", "input-last-dimension".into()),
        key("sign_mode", "explicit".into()),
        key("sign_widths", vec![256i64, 512].into()),
        key("sign_values", signs.into()),
        key("weight_names", weights.to_vec().into()),
        key("inverse_weight_names", vec!["token_embd.weight".to_owned()].into()),
        key("tied_output", tied.into()),
    ]
}

/// Writes the tiny llama in f32, as it is or with its matrices rotated; `tied`: without a head.
fn write_model(dir: &TempDir, name: &str, tied: bool, rotated: bool) -> std::path::PathBuf {
    let source = dir.write("source.gguf", tiny::llama().gguf());
    let codecs = Registry::default();
    let file = open_files(&source, &codecs, &OpenOptions::default()).unwrap().remove(0);
    let (mut tensors, mut folded) = (vec![], vec![]);
    for info in file.tensors.iter().filter(|info| !tied || info.name != "output.weight") {
        let mut numbers = file.tensor(info, &codecs).unwrap().unwrap().decode();
        let width = info.shape.row_len();
        if rotated && info.shape.dims().len() == 2 {
            let signs = sign(width);
            for row in numbers.chunks_exact_mut(width) {
                row.iter_mut().zip(&signs).for_each(|(w, s)| *w *= s);
                row.chunks_exact_mut(BLOCK).for_each(hadamard);
            }
            folded.extend((info.name != "token_embd.weight").then(|| info.name.clone()));
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push(WriteTensor::new(info.name.clone(), info.shape, codec("f32"), bytes));
    }
    let mut entries = file.entries.clone();
    entries.extend(if rotated { keys(&folded, tied) } else { vec![] });
    let path = dir.file(name);
    write(&path, &entries, tensors).unwrap();
    path
}

fn logits(path: &Path) -> Vec<Vec<f32>> {
    let checkpoint = nibble_format::open(path, &Registry::default()).unwrap_or_else(|e| panic!("{e}"));
    let model = nibble_model::build(&checkpoint).unwrap_or_else(|e| panic!("{e}"));
    let plan = Reference.compile(&model.graph, &limits(16, 16, KvType::F32)).unwrap();
    let mut runner = Runner::new(plan, model.config.vocab);
    runner.start(12);
    runner.feed(&tiny::prompt(3, 12), 12)
}

#[test]
fn rotated_matrices_give_the_logits_of_plain_ones() {
    let dir = TempDir::new("prism");
    for tied in [false, true] {
        let plain = logits(&write_model(&dir, "plain.gguf", tied, false));
        let rotated = logits(&write_model(&dir, "rotated.gguf", tied, true));
        let largest = plain.iter().flatten().fold(0f32, |most, x| most.max(x.abs()));
        for (p, r) in plain.iter().flatten().zip(rotated.iter().flatten()) {
            assert!((p - r).abs() < 1e-4 * largest, "tied {tied}: {r} instead of {p}");
        }
    }
}
