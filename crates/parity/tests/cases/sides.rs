//! Sides that are files or other programs.

use crate::common::{CONTEXT, golden, model_at, opening, options, report, texts};
use nibble_api::{NewTensor, present, safetensors_head};
use nibble_parity::{Device, Work};
use nibble_testkit::{Rng, TempDir};
use std::ops::ControlFlow;

#[test]
fn every_device_is_a_side_that_reproduces_the_golden_file() {
    let model = model_at(&golden("gguf/qwen3-f16.gguf"));
    for backend in present() {
        let report = report(&model, "cpu", backend.name, "").unwrap();
        assert!(report.passes() && report.checked.contains("golden file"), "{}: {report}", backend.name);
        assert!(
            report.reference.text.contains("sha256") && report.reference.side == backend.name,
            "{report}"
        );
    }
}

#[test]
fn what_is_no_side_is_refused_with_all_that_are() {
    let model = model_at(&golden("gguf/llama-f32.gguf"));
    let error = report(&model, "cpu", "abacus", "").unwrap_err().to_string();
    for word in ["abacus", "reference", "llama.cpp", "transformers", "mlx-lm", "record"] {
        assert!(error.contains(word), "{error}");
    }
    let other = report(&model, "cpu", golden("models/gemma3").to_str().unwrap(), "");
    assert!(other.is_ok_and(|r| !r.passes()), "another model of the same vocabulary");
}

#[test]
fn a_bound_that_is_broken_is_a_fail_that_says_which() {
    let model = model_at(&golden("gguf/llama-q8_0.gguf"));
    let strict = report(&model, "cpu", "reference", "kl=-1,max-diff=100").unwrap();
    assert_eq!(strict.broken.len(), 1, "{strict}");
    assert!(strict.broken[0].contains("mean divergence"), "{strict}");
}

#[test]
fn a_logits_file_is_a_side_with_tokens_inside_or_given() {
    let scratch = TempDir::new("parity-logits");
    let (path, model) = (scratch.file("l.safetensors"), model_at(&golden("gguf/llama-f32.gguf")));
    let (tokens, vocab) = ([5u32, 6, 7, 8, 9, 10], model.config.vocab);
    let mut rows = vec![];
    let mut engine = model.start(&options("reference")).unwrap();
    engine.score(&tokens, |_, row| rows.extend(row.iter().flat_map(|x| x.to_le_bytes()))).unwrap();
    let logits = NewTensor { name: "logits".into(), dtype: "F32", shape: vec![tokens.len(), vocab] };
    let ids = NewTensor { name: "tokens".into(), dtype: "U32", shape: vec![tokens.len()] };
    let id_bytes: Vec<u8> = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
    let against = path.to_str().unwrap();
    let texts_of = [("tokens", "5,6,7,8,9,10".to_owned())];
    let with_text = [safetensors_head(std::slice::from_ref(&logits), &texts_of), rows.clone()].concat();
    let with_tensor = [safetensors_head(&[logits.clone(), ids], &[]), rows.clone(), id_bytes].concat();
    for file in [with_text, with_tensor] {
        std::fs::write(&path, file).unwrap();
        let report = report(&model, "cpu", against, "").unwrap();
        assert!(report.passes() && report.agreement.positions == 6 && report.greedy.is_none(), "{report}");
    }
    std::fs::write(&path, [safetensors_head(&[logits], &[]), rows].concat()).unwrap();
    assert!(report(&model, "cpu", against, "").unwrap_err().to_string().contains("--tokens"));
    let (options, texts) = (options("cpu"), texts());
    let with = nibble_parity::Opening { tokens: Some(&tokens), ..opening(&model, &options, &texts) };
    assert_eq!(nibble_parity::open(against, &with).unwrap().prompts().unwrap()[0].tokens, tokens);
}

#[test]
fn a_damaged_record_is_refused_or_fails_and_never_panics() {
    let scratch = TempDir::new("parity-damaged");
    let (path, model) = (scratch.file("r.safetensors"), model_at(&golden("gguf/llama-q8_0.gguf")));
    let mut side = Device::new(model.clone(), &options("reference")).unwrap();
    let work = Work { texts: &texts()[..1], continuation: 2, bounds: "" };
    let (prompts, _) = nibble_parity::prompts(&mut side, &work, CONTEXT).unwrap();
    nibble_parity::write_record(&path, &mut side, prompts, &mut |_, _| ControlFlow::Continue(())).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let head_len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let (options, texts, mut rng) = (options("cpu"), texts(), Rng::new(3));
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut file = whole.clone();
        let at = 8 + rng.below(head_len);
        file[at] = b'0' + (rng.bits() % 10) as u8;
        std::fs::write(&path, file).unwrap();
        match nibble_parity::open(path.to_str().unwrap(), &opening(&model, &options, &texts)) {
            Ok(mut side) => {
                opened += 1;
                for prompt in side.prompts().unwrap().to_vec() {
                    let mut rows = 0;
                    side.rows(&prompt, &mut |_, _| rows += 1).unwrap();
                    assert_eq!(rows, prompt.positions());
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} {refused}");
}

/// Whatever Python is here: one that has the library compares, one that has not says so in a sentence.
#[test]
fn other_programs_are_named_when_they_are_not_there() {
    let model = model_at(&golden("gguf/llama-f32.gguf"));
    let (options, texts) = (options("cpu"), texts());
    for spec in ["llama.cpp", "transformers", "mlx-lm"] {
        let missing = std::path::Path::new("no-such-program");
        let with = nibble_parity::Opening { program: Some(missing), ..opening(&model, &options, &texts) };
        let error = nibble_parity::open(spec, &with).err().unwrap();
        assert!(error.to_string().contains("no-such-program: cannot be run"), "{error}");
        assert_eq!(error.kind, nibble_api::Kind::Usage);
    }
}
