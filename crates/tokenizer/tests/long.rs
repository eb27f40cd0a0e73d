//! Long monotonous texts, on a small stack.

mod common;
#[path = "common/tiny.rs"]
mod tiny;

use nibble_tokenizer::{EncodeOptions, ModelKind, PRETOKENIZERS, Tokenizer, Vocab};

/// Less than half of what a thread gets by default; deep recursion does not fit.
const STACK_BYTES: usize = 512 << 10;

fn long_texts() -> [(&'static str, String); 8] {
    [
        ("A", "A".repeat(43_000)),
        ("Z", "Z".repeat(131_072)),
        ("spaces", " ".repeat(60_000)),
        ("lines", "\n".repeat(30_000)),
        ("spaces and a letter", " ".repeat(60_000) + "a"),
        ("spaces and lines", "  \n".repeat(20_000)),
        ("digits", "7".repeat(50_000)),
        ("punctuation", "!?".repeat(30_000)),
    ]
}

fn round_trip(name: &str, vocab: Vocab) {
    let exact = vocab.model != ModelKind::WordPiece;
    let work = move || {
        let t = Tokenizer::new(vocab).unwrap();
        for (text_name, text) in long_texts() {
            let ids = t.encode(&text, EncodeOptions::TEXT);
            if exact {
                assert!(t.decode(&ids, false) == text, "{text_name} does not come back");
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).name(name.into());
    thread.spawn(work).unwrap().join().unwrap_or_else(|_| panic!("{name} failed"));
}

#[test]
fn long_runs_come_back_through_every_pretokenizer() {
    for pre in PRETOKENIZERS {
        round_trip(pre.names[0], tiny::byte_bpe(pre.names[0]));
    }
    round_trip("sentencepiece", tiny::marked(ModelKind::SentencePiece));
    round_trip("text bpe", tiny::marked(ModelKind::TextBpe));
    round_trip("word piece", tiny::word_piece());
}

#[test]
fn long_runs_come_back_through_real_vocabularies() {
    for name in ["gpt-2", "llama-spm", "deepseek-coder", "bert-bge"] {
        if let Some(vocab) = common::real_vocab(name) {
            round_trip(name, vocab);
        }
    }
}
