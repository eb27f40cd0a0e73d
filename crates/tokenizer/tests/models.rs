//! The models on vocabularies made by hand.

#[path = "common/tiny.rs"]
mod tiny;

use nibble_tokenizer::{EncodeOptions, ModelKind, TokenType, Tokenizer, Vocab};
use tiny::{byte_bpe, ids, marked, word_piece};

fn tokenizer(vocab: Vocab) -> Tokenizer {
    Tokenizer::new(vocab).unwrap()
}

fn text_ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, EncodeOptions::TEXT)
}

#[test]
fn byte_merges_happen_in_order_of_rank() {
    let t = tokenizer(byte_bpe("gpt-2"));
    assert_eq!(text_ids(&t, "hello"), ids(&t, &["hello"]));
    assert_eq!(text_ids(&t, "hell world"), ids(&t, &["hell", "Ġwo", "r", "l", "d"]));
    assert_eq!(text_ids(&t, "AAAAAAA"), ids(&t, &["AAAA", "AA", "A"]));
    assert_eq!(text_ids(&t, "x     w"), ids(&t, &["x", "ĠĠĠĠ", "Ġw"]));
}

#[test]
fn whole_words_skip_the_merges_only_where_the_pretokenizer_says_so() {
    let mut vocab = byte_bpe("llama-bpe");
    vocab.merges.retain(|m| m != "hell o");
    assert_eq!(text_ids(&tokenizer(vocab.clone()), "hello").len(), 1);
    vocab.pre = "qwen2".into();
    assert_eq!(text_ids(&tokenizer(vocab), "hello").len(), 2);
}

#[test]
fn special_tokens_are_read_only_when_asked_for() {
    let t = tokenizer(byte_bpe("gpt-2"));
    let read = EncodeOptions { parse_special: true, add_special: false };
    assert_eq!(t.encode("h<|im_end|>h", read), ids(&t, &["h", "<|im_end|>", "h"]));
    assert_eq!(t.encode("<|im_end|>xx", read), ids(&t, &["<|im_end|>x", "x"]), "the longest token wins");
    let plain = text_ids(&t, "<|im_end|>");
    assert!(!plain.contains(&t.eos().unwrap()));
    assert_eq!(t.decode(&plain, true), "<|im_end|>");
    assert_eq!(text_ids(&t, "a<tool>"), ids(&t, &["a", "<tool>"]), "user-defined tokens are always read");
}

#[test]
fn plain_text_never_becomes_a_control_token_by_merging() {
    let mut vocab = marked(ModelKind::SentencePiece);
    vocab.tokens.push("<s".into());
    vocab.types.push(TokenType::Normal);
    vocab.scores.push(5.0);
    let t = tokenizer(vocab);
    assert!(!text_ids(&t, "<s><0x41>").contains(&1));
    assert!(!text_ids(&t, "<s><0x41>").contains(&t.token_to_id("<0x41>").unwrap()));
}

#[test]
fn bos_and_eos_follow_the_keys_and_then_the_pretokenizer() {
    let around = |vocab: Vocab| {
        let t = tokenizer(vocab);
        let ids = t.encode("a", EncodeOptions::PROMPT);
        (ids.first() == t.bos().as_ref(), ids.last() == t.eos().as_ref())
    };
    assert_eq!(around(byte_bpe("gpt-2")), (false, false));
    assert_eq!(around(byte_bpe("llama-bpe")), (true, false));
    assert_eq!(around(Vocab { add_bos: Some(false), ..byte_bpe("llama-bpe") }), (false, false));
    assert_eq!(around(Vocab { add_bos: Some(true), add_eos: Some(true), ..byte_bpe("gpt-2") }), (true, true));
    assert_eq!(around(marked(ModelKind::SentencePiece)), (true, false));
    let t = tokenizer(byte_bpe("llama-bpe"));
    let twice = t.encode("<|begin|>a", EncodeOptions::PROMPT);
    assert_eq!(twice, ids(&t, &["<|begin|>", "a"]), "a BOS that is there is not doubled");
}

#[test]
fn sentencepiece_merges_by_score_and_falls_back_to_bytes() {
    let t = tokenizer(Vocab { add_space_prefix: Some(false), ..marked(ModelKind::SentencePiece) });
    assert_eq!(text_ids(&t, "abcb"), ids(&t, &["abc", "b"]));
    assert_eq!(text_ids(&t, "bc G"), ids(&t, &["bc", "▁G"]));
    assert_eq!(text_ids(&t, "é€"), ids(&t, &["é", "<0xE2>", "<0x82>", "<0xAC>"]));
    assert_eq!(text_ids(&t, "a     b"), ids(&t, &["a", "▁▁▁▁", "▁", "b"]));
    assert!(text_ids(&t, "").is_empty());
}

#[test]
fn a_space_prefix_goes_before_text_at_the_start_and_after_control_tokens() {
    let read = EncodeOptions { parse_special: true, add_special: false };
    let on = tokenizer(marked(ModelKind::SentencePiece));
    assert_eq!(on.encode("<s>G", read), ids(&on, &["<s>", "▁G"]));
    assert_eq!(on.encode("G", read), ids(&on, &["▁G"]));
    assert_eq!(on.decode(&on.encode("<s>G G", read), false), "<s>G G");
    assert_eq!(on.decode(&on.encode(" G", read), false), " G");
    let off = tokenizer(Vocab { add_space_prefix: Some(false), ..marked(ModelKind::SentencePiece) });
    assert_eq!(off.encode("<s>G", read), ids(&off, &["<s>", "G"]));
    assert_eq!(off.decode(&off.encode("<s> G", read), false), "<s> G");
}

#[test]
fn extra_white_space_goes_where_the_vocabulary_says_so() {
    let vocab = Vocab { remove_extra_whitespaces: true, ..marked(ModelKind::SentencePiece) };
    let t = tokenizer(vocab);
    assert_eq!(t.decode(&text_ids(&t, "  a   G  "), true), "a G");
}

#[test]
fn tokens_that_strip_swallow_white_space_on_their_side() {
    let mut vocab = byte_bpe("gpt-2");
    vocab.rstrip = vec![vocab.eos.unwrap()];
    let read = EncodeOptions { parse_special: true, add_special: false };
    let t = tokenizer(vocab.clone());
    assert_eq!(t.encode("a <|im_end|>\n b", read), ids(&t, &["a", "Ġ", "<|im_end|>", "b"]));
    vocab.lstrip = std::mem::take(&mut vocab.rstrip);
    let t = tokenizer(vocab);
    assert_eq!(t.encode("a <|im_end|> b", read), ids(&t, &["a", "<|im_end|>", "Ġ", "b"]));
}

#[test]
fn text_bpe_merges_characters_and_falls_back_to_bytes() {
    let t = tokenizer(marked(ModelKind::TextBpe));
    assert_eq!(text_ids(&t, "ab G\n€"), ids(&t, &["ab", "▁G", "<0x0A>", "<0xE2>", "<0x82>", "<0xAC>"]));
    assert_eq!(t.decode(&text_ids(&t, "ab  G\n€"), false), "ab  G\n€");
}

#[test]
fn word_piece_takes_the_longest_token_of_each_clean_word() {
    let t = tokenizer(word_piece());
    assert_eq!(text_ids(&t, "Unaffable  CAFÉ!"), ids(&t, &["▁un", "aff", "able", "▁cafe", "▁!"]));
    assert_eq!(text_ids(&t, "a中a unknown"), ids(&t, &["▁a", "▁中", "▁a", "[UNK]"]));
    assert_eq!(t.encode("a", EncodeOptions::PROMPT), ids(&t, &["[CLS]", "▁a", "[SEP]"]));
    assert_eq!(t.decode(&text_ids(&t, "unaffable cafe"), true), "unaffable cafe");
}

#[test]
fn end_tokens_are_those_named_and_those_known_by_their_text() {
    let mut vocab = byte_bpe("gpt-2");
    vocab.eos = None;
    vocab.end = vec![3];
    vocab.eot = Some(7);
    vocab.tokens.extend(["<|end|>", "<|return|>", "<|call|>", "</s>"].map(str::to_owned));
    vocab.types.extend([TokenType::Control; 3]);
    vocab.types.push(TokenType::Normal);
    let mut t = tokenizer(vocab);
    let mut expected = vec![3, 7];
    expected.extend(ids(&t, &["<|im_end|>", "<|return|>", "<|call|>"]));
    assert_eq!(t.end_tokens(), expected, "neither a message's <|end|> nor a normal </s>");
    assert!(t.is_end(7) && !t.is_end(8));
    t.add_end_tokens(&[9, 8]).unwrap();
    assert!(t.is_end(8) && t.is_end(9));
    assert!(t.add_end_tokens(&[1 << 30]).is_err());
}

#[test]
fn pieces_are_the_bytes_of_each_token() {
    let t = tokenizer(byte_bpe("gpt-2"));
    assert_eq!(t.piece(0xF0), [0xF0]);
    assert_eq!(t.piece(t.token_to_id("Ġwo").unwrap()), b" wo");
    assert_eq!(t.piece(t.bos().unwrap()), b"<|begin|>");
    assert_eq!(t.piece(u32::MAX), b"");
    let t = tokenizer(marked(ModelKind::SentencePiece));
    assert_eq!(t.piece(3), [0]);
    assert_eq!(t.piece(t.token_to_id("▁G").unwrap()), b" G");
    assert_eq!(t.vocab_size(), marked(ModelKind::SentencePiece).tokens.len());
}

#[test]
fn duplicate_tokens_keep_the_lower_id() {
    let mut vocab = byte_bpe("gpt-2");
    vocab.tokens.push("hello".into());
    vocab.types.push(TokenType::Normal);
    let last = vocab.tokens.len() as u32 - 1;
    let t = tokenizer(vocab);
    assert!(t.token_to_id("hello").unwrap() < last);
    assert_eq!(t.decode(&[last], false), "hello");
}

#[test]
fn bad_vocabularies_are_refused_with_the_key_concerned() {
    let good = || byte_bpe("gpt-2");
    let spm = || marked(ModelKind::SentencePiece);
    for (vocab, says) in [
        (Vocab { types: vec![TokenType::Normal; 3], ..good() }, ["token_type", "3 entries"]),
        (Vocab { scores: vec![0.0; 3], ..good() }, ["scores", "3 entries"]),
        (Vocab { scores: vec![], ..spm() }, ["scores", "0 entries"]),
        (Vocab { bos: Some(100_000), ..good() }, ["bos_token_id", "100000"]),
        (Vocab { mask: Some(u32::MAX), ..good() }, ["mask_token_id", "4294967295"]),
        (Vocab { end: vec![1, 999], ..good() }, ["end ids", "999"]),
        (Vocab { merges: vec!["a q".into(), "q qq".into()], ..good() }, ["merges", "merge 0 `a q`"]),
        (Vocab { merges: vec!["hello".into()], ..good() }, ["merges", "merge 0"]),
        (Vocab { merges: vec![String::new()], ..good() }, ["merges", "merge 0"]),
        (Vocab { pre: "nonsense".into(), ..good() }, ["tokenizer.ggml.pre", "`nonsense`"]),
        (Vocab { pre: String::new(), ..good() }, ["tokenizer.ggml.pre", "missing"]),
        (Vocab::new(ModelKind::ByteBpe, vec![]), ["tokens", "at least one"]),
    ] {
        let error = Tokenizer::new(vocab).unwrap_err().to_string();
        assert!(says.iter().all(|part| error.contains(part)), "{error} should say {says:?}");
    }
    let error = ModelKind::from_gguf("rwkv").unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.model") && error.contains("`rwkv`"), "{error}");
    assert_eq!(TokenType::from_gguf(7), None);
}

#[test]
fn a_vocabulary_without_bytes_leaves_out_what_it_cannot_write() {
    let mut vocab = Vocab::new(ModelKind::ByteBpe, vec!["a".into()]);
    vocab.pre = "gpt-2".into();
    assert_eq!(text_ids(&tokenizer(vocab), "abéa"), [0, 0]);
    let mut vocab = Vocab::new(ModelKind::SentencePiece, vec!["a".into(), "?".into()]);
    vocab.scores = vec![0.0, f32::NAN];
    vocab.unk = Some(1);
    assert_eq!(text_ids(&tokenizer(vocab), "aéa"), [1, 0, 1, 0], "the prefix space is unknown too");
}
