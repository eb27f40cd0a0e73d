//! `tokenizer.json` files: made by hand, and the one of a trained model.

use nibble_testkit::{Rng, shared_dir};
use nibble_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};

const READ: EncodeOptions = EncodeOptions { parse_special: true, add_special: false };

/// A small character BPE in the way of Llama; the tests change parts of it.
fn llama() -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "normalized": false,
               "single_word": false, "lstrip": false, "rstrip": false})
    };
    json!({
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "G": 4, "▁G": 5, "a": 6, "Ga": 7},
            "merges": ["▁ G", ["G", "a"]]}
    })
}

fn read(file: &Value) -> Tokenizer {
    Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap()
}

#[test]
fn a_prepended_space_follows_each_special_token() {
    let t = read(&llama());
    assert_eq!(t.encode("<s>G", READ), [1, 5]);
    assert_eq!(t.encode("G Ga", EncodeOptions::PROMPT), [1, 5, 5, 6]);
    assert_eq!(t.decode(&[1, 5, 5, 6], true), "G Ga");
    let mut off = llama();
    off["normalizer"]["normalizers"][0]["prepend"] = "".into();
    assert_eq!(read(&off).encode("<s>G", READ), [1, 4]);
}

#[test]
fn metaspace_prepends_by_its_scheme() {
    for (scheme, after_special, at_start) in [("always", 5, 5), ("first", 4, 5), ("never", 4, 4)] {
        let mut file = llama();
        file["normalizer"] = Value::Null;
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
        file["pre_tokenizer"] = metaspace.clone();
        file["decoder"] = metaspace;
        let t = read(&file);
        assert_eq!(t.encode("<s>G", READ), [1, after_special], "{scheme}");
        assert_eq!(t.encode("G", READ), [at_start], "{scheme}");
        assert_eq!(t.decode(&t.encode("G G", READ), false), "G G", "{scheme}");
    }
}

#[test]
fn neighbouring_unknown_characters_are_one_token() {
    let mut file = llama();
    let t = read(&file);
    assert_eq!(t.encode("Gxyza", EncodeOptions::TEXT), [5, 0, 6]);
    file["model"]["fuse_unk"] = false.into();
    assert_eq!(read(&file).encode("Gxya", EncodeOptions::TEXT), [5, 0, 0, 6]);
}

#[test]
fn added_tokens_strip_and_keep_to_whole_words_as_they_say() {
    let mut file = llama();
    file["added_tokens"].as_array_mut().unwrap().push(json!({
        "id": 8, "content": "aa", "special": false, "normalized": false,
        "single_word": true, "lstrip": true, "rstrip": false}));
    file["normalizer"] = Value::Null;
    let t = read(&file);
    assert_eq!(t.encode("G  aa", EncodeOptions::TEXT), [4, 8]);
    assert_eq!(t.encode("Gaaa", EncodeOptions::TEXT), [7, 6, 6]);
}

#[test]
fn unigram_takes_the_best_sum_of_scores() {
    let mut file = llama();
    file["normalizer"] = Value::Null;
    file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": [
        ["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0], ["a", -2.0], ["b", -2.0], ["ab", -3.0], ["ba", -1.0]]});
    let t = read(&file);
    assert_eq!(t.encode("aba", EncodeOptions::TEXT), [3, 6]);
    assert_eq!(t.encode("ab", EncodeOptions::TEXT), [5]);
    assert_eq!(t.encode("axyb", EncodeOptions::TEXT), [3, 0, 4]);
}

#[test]
fn word_piece_marks_what_continues_a_word() {
    let mut file = llama();
    file["normalizer"] = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": true});
    file["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});
    file["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    file["model"] = json!({"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 8,
        "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "un": 3, "##do": 4, "!": 5, "##ing": 6}});
    let t = read(&file);
    assert_eq!(t.encode("Undoing! x", EncodeOptions::TEXT), [3, 4, 6, 5, 0]);
    assert_eq!(t.encode("undododoing", EncodeOptions::TEXT), [0], "too long a word");
    assert_eq!(t.decode(&[3, 4, 6], true), "undoing");
}

#[test]
fn the_config_names_and_overrules() {
    let config = json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": false,
                        "add_eos_token": true, "pad_token": null});
    let t =
        Tokenizer::from_json(llama().to_string().as_bytes(), Some(config.to_string().as_bytes())).unwrap();
    assert_eq!((t.bos(), t.eos(), t.pad(), t.unk()), (Some(1), Some(2), None, Some(0)));
    assert_eq!(t.encode("G", EncodeOptions::PROMPT), [5, 2]);
    assert!(t.is_end(2));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let lone =
        json!({"type": "Split", "pattern": {"Regex": "a(?=b)"}, "behavior": "Isolated", "invert": false});
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let doubling = json!({"type": "Sequence", "normalizers": vec![double; 30]});
    let splits = json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "WhitespaceSplit"}); 33]});
    for (pointer, value, says) in [
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": ""}), "Precompiled"),
        ("/pre_tokenizer", json!({"type": "UnicodeScripts"}), "UnicodeScripts"),
        ("/pre_tokenizer", lone, "a(?=b)"),
        ("/normalizer", doubling, "times longer"),
        ("/normalizer/normalizers/0/prepend", "x".repeat(1000).into(), "times longer"),
        ("/decoder/decoders/0/content", "x".repeat(1000).into(), "times longer"),
        ("/pre_tokenizer", splits, "33 steps"),
        ("/model/type", "WordLevel".into(), "WordLevel"),
        ("/model/end_of_word_suffix", "</w>".into(), "</w>"),
        ("/model/merges/0", "G G".into(), "G G"),
        ("/model/merges/0", json!(["G"]), "JSON"),
        ("/model/unk_token", "<none>".into(), "<none>"),
        ("/model/vocab/G", json!(4_000_000_000u32), "4000000000"),
        ("/model/vocab/G", json!(-1), "JSON"),
        ("/model/vocab/G", json!(6), "contradicts"),
        ("/added_tokens/0/id", json!(4_294_967_295u32), "4294967295"),
        ("/post_processor/special_tokens/<s>/ids/0", json!(77), "77"),
    ] {
        let mut file = llama();
        match file.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => file["model"]["end_of_word_suffix"] = value,
        }
        let error = Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer: tokenizer.json") && error.contains(says), "{pointer}: {error}");
    }
}

#[test]
fn damaged_files_never_panic() {
    let good = llama().to_string().into_bytes();
    let mut rng = Rng::new(3);
    let mut refused = 0;
    for round in 0..3000 {
        let mut bad = good.clone();
        for _ in 0..=round % 3 {
            let at = rng.below(bad.len());
            match rng.below(3) {
                0 => bad[at] = rng.bits() as u8,
                1 => bad.truncate(at + 1),
                _ => drop(bad.drain(at..(at + 8).min(bad.len()))),
            }
            if bad.is_empty() {
                bad.push(b'{');
            }
        }
        match Tokenizer::from_json(&bad, None) {
            Ok(t) => drop(t.decode(&t.encode("<s>G a\u{0}é", EncodeOptions::PROMPT), false)),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_trained_models_own_file_gives_its_golden_ids() {
    let Some(dir) = shared_dir().map(|dir| dir.join("tiny/tiny-llama")) else { return };
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let t = Tokenizer::from_json(&bytes("tokenizer.json"), Some(&bytes("tokenizer_config.json"))).unwrap();
    let golden: Value = serde_json::from_slice(&bytes("golden.json")).unwrap();
    let prompts = golden["prompts"].as_array().unwrap();
    let mut compared = 0;
    for prompt in prompts.iter().filter(|p| p["text"].is_string()) {
        let expected: Vec<u32> = serde_json::from_value(prompt["ids"].clone()).unwrap();
        let text = prompt["text"].as_str().unwrap();
        assert_eq!(t.encode(text, READ), expected, "{}", prompt["name"]);
        assert_eq!(t.decode(&expected, false), text);
        compared += 1;
    }
    assert!(compared > 0);
    assert_eq!(t.end_tokens(), [0, 2]);
}
