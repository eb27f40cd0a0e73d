//! Any bytes as a tokenizer.json, and what follows a zero byte as the text that it is to encode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nibble_tokenizer::{EncodeOptions, Tokenizer};

fuzz_target!(|data: &[u8]| {
    let (json, text) = data.split_at(data.iter().position(|&b| b == 0).unwrap_or(data.len()));
    let Ok(tokenizer) = Tokenizer::from_json(json, None) else { return };
    let text = format!("Hello, wörld 12  x\n{}", String::from_utf8_lossy(text));
    let ids = tokenizer.encode(&text, EncodeOptions::PROMPT);
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    let mut stream = tokenizer.stream(true);
    let parts: String = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(parts + &stream.finish(), tokenizer.decode(&ids, true));
});
