//! Packed directories that are renamed, cut, or lack something are refused with one sentence that names it; where they
//! are not, they mean the same numbers as before.

use nibble_format::{Checkpoint, safetensors::SafetensorsFile};
use nibble_quant::Registry;
use nibble_testkit::{
    Rng, TempDir, golden,
    pack::{Tensor, safetensors},
};
use serde_json::{Value as Json, json};
use std::{collections::BTreeMap, fs, path::Path};

/// A directory in memory, to be changed and written.
#[derive(Clone)]
struct Directory {
    config: Json,
    tensors: Vec<Tensor>,
}

impl Directory {
    fn read(path: &Path) -> Self {
        let weights = path.join("model.safetensors");
        let file = SafetensorsFile::parse(fs::read(&weights).unwrap().into(), &weights).unwrap();
        let tensor = |(name, info): (&String, &nibble_format::safetensors::TensorInfo)| {
            Tensor::new(name, &info.dtype, &info.shape, file.raw(info).to_vec())
        };
        let config = serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap();
        Self { config, tensors: file.tensors.iter().map(tensor).collect() }
    }

    fn file(&self) -> Vec<u8> {
        safetensors(&self.tensors)
    }

    /// The numbers of the matrices that a model is built from, or why none is.
    fn open(&self, dir: &TempDir) -> Result<BTreeMap<String, Vec<f32>>, String> {
        dir.write("model.safetensors", self.file());
        self.open_config(dir)
    }

    fn open_config(&self, dir: &TempDir) -> Result<BTreeMap<String, Vec<f32>>, String> {
        dir.write("config.json", self.config.to_string());
        let checkpoint: Checkpoint =
            nibble_format::open(dir.path(), &Registry::default()).map_err(|e| e.to_string())?;
        nibble_model::build(&checkpoint).map_err(|e| e.to_string())?;
        Ok(checkpoint.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.decode())).collect())
    }
}

/// One sentence, and about this directory.
fn check_sentence(message: &str, dir: &TempDir) {
    let place = dir.path().display().to_string();
    assert!(message.contains(&place) && !message.contains('\n') && message.len() < 600, "{message:?}");
}

/// Runs `change` for each packed directory and its name; it returns how many cases it was.
fn each(name: &str, mut change: impl FnMut(&str, &Directory, &TempDir) -> usize) -> usize {
    let dir = TempDir::new(&format!("refused-{name}"));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    golden::containers().iter().map(|path| change(&name(path), &Directory::read(path), &dir)).sum()
}

#[test]
fn a_directory_without_one_of_its_tensors_is_refused() {
    let cases = each("missing", |name, directory, dir| {
        for index in 0..directory.tensors.len() {
            let mut changed = directory.clone();
            let missing = changed.tensors.remove(index).name;
            let built = changed.open(dir);
            let Err(message) = built else {
                // Groups in order need no list of them.
                assert!(missing.ends_with(".g_idx") && name != "gptq-4-order", "{name} without {missing}");
                continue;
            };
            check_sentence(&message, dir);
            let last = missing.rsplit('.').nth(1).unwrap();
            let canonical = [
                ("embed_tokens", "embed"),
                ("input_layernorm", "norm"),
                ("post_attention_layernorm", "norm"),
            ];
            let known = canonical.iter().find(|(hf, _)| *hf == last).map_or(last, |(_, canonical)| canonical);
            assert!(message.contains(known), "{name} without {missing}: {message:?}");
        }
        directory.tensors.len()
    });
    assert!(cases > 300, "{cases}");
}

#[test]
fn a_tensor_of_another_shape_is_refused() {
    let cases = each("shape", |name, directory, dir| {
        let mut cases = 0;
        for index in 0..directory.tensors.len() {
            let mut changed = directory.clone();
            let Tensor { name: tensor, dims: shape, .. } = &mut changed.tensors[index];
            let tensor = tensor.clone();
            // The same bytes, with the dimensions the other way round, or in two.
            match shape[..] {
                [a, b] | [a, b, _] if a != b => shape.swap(0, 1),
                [n] if n > 1 && n.is_multiple_of(2) => *shape = vec![2, n / 2],
                _ => continue,
            }
            let Err(message) = changed.open(dir) else {
                panic!("{name}: {tensor} is taken in another shape")
            };
            check_sentence(&message, dir);
            cases += 1;
        }
        cases
    });
    assert!(cases > 200, "{cases}");
}

/// Everything that is wrong, as `nibble inspect` lists it.
fn problems(dir: &TempDir) -> Vec<String> {
    let options = nibble_format::OpenOptions { keep_broken: true, ..Default::default() };
    match nibble_format::open_with(dir.path(), &Registry::default(), &options) {
        Ok(checkpoint) => {
            let broken = checkpoint.broken.errors.iter().map(ToString::to_string);
            broken.chain(nibble_model::problems(&checkpoint).iter().map(ToString::to_string)).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

#[test]
fn all_that_is_missing_or_of_another_shape_is_listed_once() {
    let cases = each("listed", |name, directory, dir| {
        directory.open(dir).unwrap();
        assert_eq!(problems(dir), Vec::<String>::new(), "{name}");
        // Gone: a norm, all of v, one tensor of down. Of another shape: one of gate's, a norm.
        let mut changed = directory.clone();
        changed.tensors.retain(|t| !t.name.contains("input_layernorm") && !t.name.contains("v_proj"));
        let needed = |t: &Tensor| t.name.contains("down_proj") && !t.name.ends_with("g_idx");
        let down = changed.tensors.iter().position(needed).unwrap();
        let down = changed.tensors.remove(down).name;
        let gate = changed.tensors.iter_mut().find(|t| t.name.contains("gate_proj") && t.dims.len() > 1);
        let gate = gate.map(|t| {
            t.dims.reverse();
            t.name.clone()
        });
        let norm = changed.tensors.iter_mut().find(|t| t.name == "model.norm.weight").unwrap();
        norm.dims = vec![2, norm.dims[0] / 2];
        let first = changed.open(dir).unwrap_err();
        let found = problems(dir);
        let place = format!("{}: ", dir.path().display());
        let about = |what: &[&str]| {
            let says = |p: &&String| what.iter().any(|what| p[place.len()..].contains(what));
            let count = found.iter().filter(says).count();
            assert_eq!(count, 1, "{name} ({down}, {gate:?}): {what:?} in {found:#?}");
        };
        about(&["attn.norm"]);
        about(&["attn.v", "v_proj"]);
        about(&["ffn.down", "down_proj"]);
        about(&["ffn.gate", "gate_proj"]);
        about(&["`norm`"]);
        assert_eq!(found.len(), 5, "{name}: {found:#?}");
        assert!(found.contains(&first), "{name}: {first} is not among {found:#?}");
        found.iter().for_each(|problem| check_sentence(problem, dir));
        found.len()
    });
    assert!(cases > 150, "{cases}");
}

#[test]
fn a_missing_shard_and_what_it_held_are_one_problem_and_others_are_listed_beside_it() {
    let model = nibble_testkit::workspace_root().join("golden/models/qwen2-sharded");
    let dir = TempDir::new("refused-shards");
    for entry in fs::read_dir(&model).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(entry.path(), dir.file(entry.file_name().to_str().unwrap())).unwrap();
    }
    assert_eq!(problems(&dir), Vec::<String>::new());
    fs::remove_file(dir.file("model-00002-of-00002.safetensors")).unwrap();
    let mut index: Json =
        serde_json::from_slice(&fs::read(dir.file("model.safetensors.index.json")).unwrap()).unwrap();
    let map = index["weight_map"].as_object_mut().unwrap();
    map.insert("model.layers.0.extra.weight".into(), "model-00001-of-00002.safetensors".into());
    let first = map.iter().find(|(name, file)| {
        name.contains("proj.weight") && file.as_str() == Some("model-00001-of-00002.safetensors")
    });
    let gone = first.unwrap().0.clone();
    map.remove(&gone);
    dir.write("model.safetensors.index.json", index.to_string());
    let found = problems(&dir);
    let says = |word: &str| found.iter().filter(|p| p.contains(word)).count();
    assert_eq!((says("00002-of"), says("layers.0.extra"), found.len()), (1, 1, 3), "{gone}: {found:#?}");
}

#[test]
fn a_cut_file_is_refused() {
    let cases = each("cut", |name, directory, dir| {
        let file = directory.file();
        let cuts = [0, 1, 7, 8, 9, 100, file.len() / 2, file.len() - 1];
        for cut in cuts {
            dir.write("model.safetensors", &file[..cut]);
            let Err(message) = directory.open_config(dir) else { panic!("{name} is taken at {cut} bytes") };
            check_sentence(&message, dir);
            assert!(message.contains("model.safetensors"), "{message}");
        }
        cuts.len()
    });
    assert!(cases > 200, "{cases}");
}

#[test]
fn a_directory_under_another_name_is_refused_or_means_the_same() {
    let group = json!({"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 64}}});
    let settings = json!({"bits": 4, "group_size": 64, "quant_algo": "NVFP4", "format": "pack-quantized", "config_groups": group});
    let methods = [
        "gptq",
        "awq",
        "compressed-tensors",
        "fp8",
        "fbgemm_fp8",
        "exl2",
        "exl3",
        "mxfp4",
        "bitnet",
        "modelopt",
        "mlx",
        "",
        "new",
    ];
    let cases = each("renamed", |name, directory, dir| {
        let expected = directory.open(dir).unwrap();
        for method in methods {
            let mut changed = directory.clone();
            let root = changed.config.as_object_mut().unwrap();
            let own = root.get("quantization_config").and_then(|own| own.get("quant_method")).cloned();
            if own == Some(method.into()) || name.starts_with("mlx") && method == "mlx" {
                continue;
            }
            root.remove("quantization");
            root.remove("quantization_config");
            let mut settings = settings.clone();
            settings["quant_method"] = method.into();
            match method {
                "" => {}
                "mlx" => drop(root.insert("quantization".into(), settings)),
                _ => drop(root.insert("quantization_config".into(), settings)),
            }
            match changed.open_config(dir) {
                Err(message) => check_sentence(&message, dir),
                Ok(found) => assert!(found == expected, "{name} as {method:?} is taken for something else"),
            }
        }
        methods.len() - 1
    });
    assert!(cases > 300, "{cases}");
}

#[test]
fn settings_that_contradict_the_tensors_are_refused() {
    let cases = each("settings", |name, directory, dir| {
        let expected = directory.open(dir).unwrap();
        let mut cases = 0;
        for pointer in [
            "/quantization/bits",
            "/quantization/group_size",
            "/quantization_config/bits",
            "/quantization_config/group_size",
            "/quantization_config/config_groups/group_0/weights/num_bits",
            "/hidden_size",
            "/intermediate_size",
            "/num_attention_heads",
            "/num_hidden_layers",
            "/vocab_size",
        ] {
            for change in [|n: u64| n * 2, |n: u64| n.div_ceil(2), |n: u64| n + 1, |_| 0] {
                let mut changed = directory.clone();
                let Some(setting) = changed.config.pointer_mut(pointer) else { continue };
                let Some(number) = setting.as_u64().filter(|&n| change(n) != n) else { continue };
                *setting = change(number).into();
                cases += 1;
                match changed.open_config(dir) {
                    Err(message) => check_sentence(&message, dir),
                    // What tensors say is not asked of the settings; the numbers are then the same.
                    Ok(found) => assert!(found == expected, "{name}: {pointer} from {number} is believed"),
                }
            }
        }
        cases
    });
    assert!(cases > 400, "{cases}");
}

#[test]
fn no_changed_byte_makes_the_reader_panic() {
    let mut rng = Rng::new(41);
    let cases = each("bytes", |_, directory, dir| {
        let (config, file) = (directory.config.to_string().into_bytes(), directory.file());
        let head = 8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
        for round in 0..24 {
            let (mut config, mut file) = (config.clone(), file.clone());
            match round % 3 {
                0 => config[rng.below(head.min(400))] = b"0123456789-\"e[]{}"[rng.below(17)],
                1 => file[8 + rng.below(head - 8)] = b"0123456789-,"[rng.below(12)],
                _ => (0..64).for_each(|_| file[head + rng.below(4000)] = rng.bits() as u8),
            }
            dir.write("config.json", config);
            dir.write("model.safetensors", file);
            if let Ok(checkpoint) = nibble_format::open(dir.path(), &Registry::default()) {
                checkpoint.tensors.values().for_each(|tensor| drop(tensor.decode()));
                nibble_model::build(&checkpoint).ok();
            }
        }
        24
    });
    assert!(cases > 500, "{cases}");
}
