//! One wrong weight is found and its layer named.

use crate::common::{CONTEXT, change, golden, model_at, open, options, report, texts};
use nibble_api::Model;
use nibble_parity::{Bounds, Device, Precision, Side, Work, compare};
use nibble_testkit::{TempDir, tiny};
use std::{collections::BTreeSet, ops::ControlFlow, path::PathBuf, sync::Arc};

/// Texts of many different tokens, so that every column of every weight has something to do.
fn traced() -> Vec<Vec<u32>> {
    [1, 2].map(|seed| tiny::prompt(seed, 60)).into()
}

/// By the numbers alone, on another device than the reference's: as a kernel that reads a wrong weight would be found.
#[test]
fn one_weight_changed_by_a_hundredth_moves_the_values_of_its_layer() {
    let (scratch, bound) = (TempDir::new("parity-traces"), Bounds::of(Precision::Exact).layers);
    for t in tiny::all() {
        let good = Arc::new(open(&scratch, &t));
        let texts = traced();
        let trace = |model: &Arc<Model>, device: &str| {
            Device::new(model.clone(), &options(device)).unwrap().trace(&texts).unwrap().unwrap()
        };
        let right = trace(&good, "reference");
        let same = right.compare(&trace(&good, "cpu"), bound).unwrap();
        assert_eq!(same.first, None, "{}: nothing is wrong", t.name);
        let mut layers = BTreeSet::new();
        for weight in &good.graph.weights {
            let Some(layer) = weight.name.strip_prefix("layer.").and_then(|r| r.split('.').next()) else {
                continue;
            };
            if weight.data.shape().dims().len() == 3 {
                continue; // an expert that no token asks for changes nothing; its bytes are compared below
            }
            let mut model = open(&scratch, &t);
            change(&mut model, &weight.name);
            let found = right.compare(&trace(&Arc::new(model), "cpu"), bound).unwrap();
            let first = found.first.unwrap_or_else(|| panic!("{}: `{}` was missed", t.name, weight.name));
            assert_eq!(
                first.layer.map(|l| l.to_string()).as_deref(),
                Some(layer),
                "{}: {first:?}",
                weight.name
            );
            layers.insert(layer.to_owned());
        }
        assert!(layers.len() > 1, "{}", t.name);
    }
}

#[test]
fn a_comparison_with_the_good_model_fails_and_names_layer_and_weight() {
    let scratch = TempDir::new("parity-verdicts");
    for t in tiny::all() {
        let good = Arc::new(open(&scratch, &t));
        let mut bad = open(&scratch, &t);
        let name =
            good.graph.weights.iter().map(|w| &w.name).rfind(|name| name.starts_with("layer.1.")).unwrap();
        change(&mut bad, name);
        let texts = texts();
        let work = Work { texts: &texts, continuation: 3, bounds: "" };
        let compared = |model: Arc<Model>| {
            let mut reference = Device::new(good.clone(), &options("reference")).unwrap();
            let mut subject = Device::new(model, &options("cpu")).unwrap();
            compare(&mut subject, &mut reference, &work, CONTEXT, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        let report = compared(good.clone());
        assert!(report.passes() && report.to_string().contains("PASS"), "{report}");
        assert_eq!((report.prompts.len(), report.greedy.as_ref().unwrap().parted), (6, 0), "{report}");
        let report = compared(Arc::new(bad));
        assert!(!report.passes(), "{}: {report}", t.name);
        assert_eq!(report.broken[0], format!("layer 1: weight `{name}` is not the same"));
        assert_eq!(report.json()["verdict"], "FAIL");
    }
}

/// A copy of a quantized golden model in which one code of a weight is off by one.
fn damaged(scratch: &TempDir, name: &str) -> PathBuf {
    let path = golden("gguf/llama-q8_0.gguf");
    let model = model_at(&path);
    let tensor = &model.checkpoint.tensors[name];
    let (mut file, bytes) = (std::fs::read(&path).unwrap(), &tensor.parts()[0][..]);
    let at = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let code = (2..34).max_by_key(|&i| (bytes[i] as i8).unsigned_abs()).unwrap();
    file[at + code] = (bytes[code] as i8 - (bytes[code] as i8).signum()) as u8;
    let copy = scratch.file("damaged.gguf");
    std::fs::write(&copy, file).unwrap();
    copy
}

#[test]
fn files_and_records_tell_which_weight_of_which_layer_is_another_one() {
    let scratch = TempDir::new("parity-files");
    let (good, name) = (golden("gguf/llama-q8_0.gguf"), "layer.1.ffn.down");
    let bad = damaged(&scratch, name);
    let record = scratch.file("record.safetensors");
    let model = model_at(&good);
    let mut side = Device::new(model.clone(), &options("reference")).unwrap();
    let work = Work { texts: &texts(), continuation: 5, bounds: "" };
    let (prompts, _) = nibble_parity::prompts(&mut side, &work, CONTEXT).unwrap();
    nibble_parity::write_record(&record, &mut side, prompts, &mut |_, _| ControlFlow::Continue(())).unwrap();
    for against in [&good, &record] {
        let against = against.to_str().unwrap();
        let passed = report(&model, "cpu", against, "").unwrap();
        assert!(passed.passes() && passed.trace.is_some() && passed.weights.is_some(), "{passed}");
        assert!(passed.greedy.is_some(), "{passed}");
        let failed = report(&model_at(&bad), "cpu", against, "").unwrap();
        assert_eq!(failed.broken[0], format!("layer 1: weight `{name}` is not the same"), "{failed}");
        let first = failed.trace.unwrap().first.unwrap();
        assert_eq!((first.layer, first.name.as_str()), (Some(1), name));
    }
}
