//! The trained tiny-llama in every container and encoding: the logits of each are those that transformers computes from
//! the numbers that decoders of their own, in Python, read in the same bytes (`golden/tiny_llama.py`).
//!
//! What is compared is written anew by `testkit::pack`: a hash of it is kept instead of megabytes of weights.
//! `WRITE=FOLDER cargo test -p nibble-backend-cpu --test tiny_llama` writes all of it there, for `tiny_llama.py`.

mod common;

use common::{cpu, open};
use nibble_backend::{Backend, KvType};
use nibble_testkit::{
    TempDir,
    golden::{self, Prompt},
    pack::{self, Plain, Written},
    runner::{Runner, limits},
    shared_dir, workspace_root,
};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fs, path::Path};

/// How far logits and their error may be from those of transformers.
const BOUND: f32 = 1e-3;

/// Writes it into `dir`; returns where it is, and the hash of its bytes.
fn write(written: &Written, dir: &Path, name: &str) -> (std::path::PathBuf, String) {
    let mut hash = Sha256::new();
    let mut put = |path: &Path, bytes: &[u8]| {
        hash.update(bytes);
        fs::write(path, bytes).unwrap();
    };
    let path = match written {
        Written::File(bytes) => {
            let path = dir.join(format!("{name}.gguf"));
            put(&path, bytes);
            path
        }
        Written::Tiled { file, tiles } => {
            let path = dir.join(name);
            fs::create_dir_all(&path).unwrap();
            put(&path.join("model.gguf"), file);
            put(&path.join("kernel_config.ini"), tiles.as_bytes());
            path.join("model.gguf")
        }
        Written::Directory { config, weights } => {
            let path = dir.join(name);
            fs::create_dir_all(&path).unwrap();
            put(&path.join("config.json"), config.as_bytes());
            put(&path.join("model.safetensors"), weights);
            path
        }
    };
    (path, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn logits(path: &Path, ids: &[u32]) -> Vec<Vec<f32>> {
    let model = open(path);
    let limits = limits(ids.len(), ids.len(), KvType::F32);
    let mut runner = Runner::new(cpu(1).compile(&model.graph, &limits).unwrap(), model.config.vocab);
    runner.start(ids.len());
    runner.feed(ids, ids.len())
}

/// The root of the mean squared difference.
fn error(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let (sum, count) = pairs.fold((0f64, 0u32), |(sum, n), (a, b)| (sum + f64::from(a - b).powi(2), n + 1));
    (sum / f64::from(count)).sqrt() as f32
}

/// Compares all cases whose names `picks` picks.
fn check(test: &str, picks: impl Fn(&str) -> bool) {
    let Some(shared) = shared_dir() else { return };
    let (dir, path) = (TempDir::new(&format!("tiny-llama-{test}")), shared.join("tiny/tiny-llama"));
    let plain = Plain::read(&path);
    let cases: Vec<_> = pack::cases().into_iter().filter(|case| picks(&case.name)).collect();
    assert!(cases.len() > 1, "{} cases", cases.len());
    if let Some(to) = std::env::var_os("WRITE") {
        return cases.iter().for_each(|case| drop(write(&(case.write)(&plain), Path::new(&to), &case.name)));
    }
    let file = workspace_root().join("golden/tiny_llama.json");
    let kept: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let golden: BTreeMap<String, (Prompt, &Json)> = golden::read(&file)
        .into_iter()
        .zip(kept["prompts"].as_array().unwrap())
        .map(|(prompt, kept)| (prompt.name.clone(), (prompt, kept)))
        .collect();
    let reference = logits(&path, &golden.values().next().unwrap().0.ids);
    for case in cases {
        let name = &case.name;
        let (prompt, kept) = golden.get(name).unwrap_or_else(|| panic!("{name} is not in tiny_llama.json"));
        let (path, hash) = write(&(case.write)(&plain), dir.path(), name);
        assert_eq!(kept["sha256"], hash.as_str(), "{name} is not what tiny_llama.py read: run both anew");
        let found = logits(&path, &prompt.ids);
        let difference = prompt.difference(&found);
        let (error, expected) = (error(&found, &reference), kept["error"].as_f64().unwrap() as f32);
        eprintln!(
            "{name}: error {error:.4}, of transformers {expected:.4}; difference {:.1e}",
            difference.max
        );
        assert!(difference.max < BOUND, "{name}: {difference:?}");
        assert!((error - expected).abs() < BOUND, "{name}: error {error}, of transformers {expected}");
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

/// A test for each of some beginnings of names, so that they run beside each other.
macro_rules! tests {
    ($($test:ident: $picks:expr;)*) => {
        $(#[test]
        fn $test() {
            check(stringify!($test), $picks);
        })*

        /// Each case belongs to one test, and each kept result to a case.
        #[test]
        fn every_case_is_compared_once() {
            let picks: &[fn(&str) -> bool] = &[$($picks),*];
            let mut names: Vec<_> = pack::cases().into_iter().map(|case| case.name).collect();
            for name in &names {
                assert_eq!(picks.iter().filter(|picks| picks(name)).count(), 1, "{name}");
            }
            names.sort();
            let kept = golden::read(&workspace_root().join("golden/tiny_llama.json"));
            assert!(kept.iter().map(|p| &p.name).eq(&names), "tiny_llama.json holds other cases");
        }
    };
}

tests! {
    gguf_plain_numbers: |name| name.starts_with("gguf-f") || name.starts_with("gguf-bf");
    gguf_blocks_of_32: |name| name.starts_with("gguf-q") && name.ends_with(['0', '1']);
    gguf_blocks_of_256: |name| name.starts_with("gguf-q") && name.ends_with("_k");
    gguf_grids_of_2_and_3_bits: |name| name.starts_with("gguf-iq2") || name.starts_with("gguf-iq3");
    gguf_grids_of_1_and_4_bits: |name| name.starts_with("gguf-iq1") || name.starts_with("gguf-iq4");
    gguf_ternary_and_small_floats: |name| {
        ["gguf-i2", "gguf-t", "gguf-stq", "gguf-mx", "gguf-nv"].iter().any(|start| name.starts_with(start))
    };
    gguf_prism: |name| name.starts_with("gguf-p");
    mlx_few_bits: |name| ["mlx-1", "mlx-2", "mlx-3"].iter().any(|start| name.starts_with(start));
    mlx_more_bits: |name| ["mlx-4", "mlx-5", "mlx-6"].iter().any(|start| name.starts_with(start));
    mlx_others: |name| ["mlx-8", "mlx-m", "mlx-n"].iter().any(|start| name.starts_with(start));
    gptq: |name| name.starts_with("gptq");
    awq_and_bitnet: |name| name.starts_with("awq") || name.starts_with("bitnet");
    compressed_integers: |name| name.starts_with("ct-int");
    eight_and_four_bit_floats: |name| {
        ["ct-fp", "ct-mx", "ct-nv", "fp8", "modelopt"].iter().any(|start| name.starts_with(start))
    };
    exl2: |name| name.starts_with("exl2");
    exl3_few_bits: |name| ["exl3-1", "exl3-2", "exl3-3", "exl3-4"].contains(&name);
    exl3_more_bits: |name| ["exl3-5", "exl3-6", "exl3-7", "exl3-8"].contains(&name);
}
