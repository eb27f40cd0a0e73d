//! Decoding token by token equals decoding at once.

#[path = "common/tiny.rs"]
mod tiny;

use nibble_testkit::Rng;
use nibble_tokenizer::{EncodeOptions, ModelKind, StreamDecoder, Tokenizer};
use tiny::{byte_bpe, ids, marked};

fn stream(mut decoder: StreamDecoder, ids: &[u32]) -> Vec<String> {
    let mut parts: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    parts.push(decoder.finish());
    parts
}

#[test]
fn an_emoji_over_two_tokens_comes_whole() {
    let t = Tokenizer::new(byte_bpe("gpt-2")).unwrap();
    let emoji = t.encode("🙂", EncodeOptions::TEXT);
    assert_eq!(emoji, ids(&t, &["ðŁ", "Ļ", "Ĥ"]), "no token of it is a character");
    assert_eq!(stream(t.stream(false), &emoji), ["", "", "🙂", ""]);
}

#[test]
fn an_unfinished_character_at_the_end_is_one_replacement() {
    let t = Tokenizer::new(byte_bpe("gpt-2")).unwrap();
    let emoji = t.encode("a🙂", EncodeOptions::TEXT);
    for cut in 2..4 {
        assert_eq!(stream(t.stream(false), &emoji[..cut]).concat(), "a\u{FFFD}");
        assert_eq!(t.decode(&emoji[..cut], false), "a\u{FFFD}");
    }
    let mut decoder = t.stream(false);
    emoji[..3].iter().for_each(|&id| drop(decoder.push(id)));
    assert_eq!((decoder.finish().as_str(), decoder.finish().as_str()), ("\u{FFFD}", ""));
}

#[test]
fn bytes_that_are_no_text_are_replaced_at_once() {
    let t = Tokenizer::new(byte_bpe("gpt-2")).unwrap();
    assert_eq!(stream(t.stream(false), &[0xFF, b'a'.into()]), ["\u{FFFD}", "a", ""]);
    assert_eq!(stream(t.stream(false), &[0xE2, b'a'.into()]), ["", "\u{FFFD}a", ""]);
}

#[test]
fn any_ids_stream_as_they_decode() {
    for vocab in [byte_bpe("gpt-2"), marked(ModelKind::SentencePiece), marked(ModelKind::TextBpe)] {
        let t = Tokenizer::new(vocab).unwrap();
        let mut rng = Rng::new(7);
        for round in 0..2000 {
            let len = rng.below(12);
            let ids: Vec<u32> = (0..len).map(|_| rng.below(t.vocab_size() + 2) as u32).collect();
            let skip = round % 2 == 0;
            let bytes = t.decode_bytes(&ids, skip);
            assert_eq!(stream(t.stream(skip), &ids).concat(), String::from_utf8_lossy(&bytes), "{ids:?}");
            assert_eq!(t.decode(&ids, skip), String::from_utf8_lossy(&bytes), "{ids:?}");
        }
    }
}

#[test]
fn texts_come_back_through_the_stream() {
    let texts = ["", " ", "  G a", "é€🙂👩‍👩‍👧‍👦", "\u{FFFD}", "a\n\n b\t c  ", "ﷺ\u{0}", "▁"];
    for vocab in [byte_bpe("gpt-2"), byte_bpe("llama-bpe"), marked(ModelKind::SentencePiece)] {
        let marks = vocab.model == ModelKind::SentencePiece;
        let t = Tokenizer::new(vocab).unwrap();
        for text in texts.iter().filter(|text| !(marks && text.contains('▁'))) {
            let ids = t.encode(text, EncodeOptions { add_special: true, parse_special: false });
            assert_eq!(stream(t.stream(true), &ids).concat(), *text);
        }
    }
}

#[test]
fn a_continued_text_keeps_its_leading_space() {
    let t = Tokenizer::new(marked(ModelKind::SentencePiece)).unwrap();
    let word = ids(&t, &["▁G"]);
    assert_eq!(stream(t.stream(true), &word).concat(), "G");
    assert_eq!(stream(t.stream_continuing(true), &word).concat(), " G");
}

#[test]
fn skipped_tokens_leave_nothing() {
    let t = Tokenizer::new(byte_bpe("gpt-2")).unwrap();
    let all = ids(&t, &["<|begin|>", "a", "<tool>", "<|im_end|>"]);
    assert_eq!(t.decode(&all, true), "a<tool>");
    assert_eq!(t.decode(&all, false), "<|begin|>a<tool><|im_end|>");
}
