//! Real vocabularies against the ids that their models' own tokenizers gave.

mod common;

use common::{VECTOR_SETS, real_vocab, test_data, vectors};
use nibble_tokenizer::{EncodeOptions, ModelKind, Tokenizer};

/// Compares every text and shows all that differ.
fn check(name: &str, tokenizer: &Tokenizer, vectors: &[(String, Vec<u32>)], round_trip: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (text, expected) in vectors {
        let found = tokenizer.encode(text, EncodeOptions::TEXT);
        if found != *expected {
            wrong.push(format!("{name}: {text:?}\n  expected {expected:?}\n  found    {found:?}"));
        }
        let back = tokenizer.decode(&found, false);
        if round_trip && back != *text {
            wrong.push(format!("{name}: {text:?} came back as {back:?}"));
        }
    }
    wrong
}

#[test]
fn every_vector_set_is_encoded_exactly_and_comes_back() {
    let mut wrong = Vec::new();
    for name in VECTOR_SETS {
        let (Some(vocab), Some(vectors)) = (real_vocab(name), vectors(name)) else { continue };
        let round_trip = vocab.model != ModelKind::WordPiece;
        let tokenizer = Tokenizer::new(vocab).unwrap();
        wrong.extend(check(name, &tokenizer, &vectors, round_trip));
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn tokenizer_json_files_give_the_ids_of_the_gguf_vocabularies() {
    let mut wrong = Vec::new();
    for (name, set) in [("qwen3", "qwen2"), ("llama3", "llama-bpe"), ("gemma3", "gemma-4")] {
        let (Some(json), Some(vectors)) =
            (test_data(&format!("tokenizers/{name}/tokenizer.json")), vectors(set))
        else {
            continue;
        };
        let config = std::fs::read(json.with_file_name("tokenizer_config.json")).ok();
        let tokenizer = Tokenizer::from_json(&std::fs::read(json).unwrap(), config.as_deref()).unwrap();
        wrong.extend(check(name, &tokenizer, &vectors, true));
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}
