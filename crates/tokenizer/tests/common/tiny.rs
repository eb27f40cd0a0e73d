//! Vocabularies small enough to read, made by hand.
#![allow(dead_code)] // each test file uses its own part

use nibble_tokenizer::{ModelKind, TokenType, Vocab};

/// The printable character of each byte, as byte-level BPE writes it.
pub fn byte_char(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return byte.into();
    }
    let moved = (0..byte).filter(|&b| !plain(b)).count() as u32;
    char::from_u32(256 + moved).unwrap()
}

/// Byte-level BPE: ids 0 to 255 are the bytes, then come merges, then special tokens.
pub fn byte_bpe(pre: &str) -> Vocab {
    let merges =
        ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "A A", "AA AA", "ð Ł"];
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_char(b).to_string()).collect();
    tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
    let mut types = vec![TokenType::Normal; tokens.len()];
    for (text, kind) in [
        ("<|begin|>", TokenType::Control),
        ("<|im_end|>", TokenType::Control),
        ("<|im_end|>x", TokenType::Control),
        ("<tool>", TokenType::UserDefined),
    ] {
        tokens.push(text.into());
        types.push(kind);
    }
    let id = |text: &str| tokens.iter().position(|t| t == text).map(|id| id as u32);
    let (bos, eos) = (id("<|begin|>"), id("<|im_end|>"));
    Vocab {
        pre: pre.into(),
        merges: merges.map(str::to_owned).into(),
        types,
        bos,
        eos,
        ..Vocab::new(ModelKind::ByteBpe, tokens)
    }
}

/// SentencePiece with byte fallback; `TextBpe` has the same tokens and merges besides.
pub fn marked(model: ModelKind) -> Vocab {
    let special = [("<unk>", TokenType::Unknown), ("<s>", TokenType::Control), ("</s>", TokenType::Control)];
    let mut tokens: Vec<String> = special.map(|(text, _)| text.into()).into();
    let mut types: Vec<TokenType> = special.map(|(_, kind)| kind).into();
    tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>")));
    types.extend([TokenType::Byte; 256]);
    let merges = ["▁ G", "a b", "ab c", "b c", "▁ ▁", "▁▁ ▁▁", "A A", "AA AA"];
    for text in ["▁", "G", "a", "b", "c", "A", "Z", "é", "<", "s", ">"] {
        tokens.push(text.into());
        types.push(TokenType::Normal);
    }
    tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
    types.extend([TokenType::Normal; 8]);
    let mut scores = vec![0.0; tokens.len() - merges.len()];
    scores.extend((0..merges.len()).map(|rank| -(rank as f32)));
    Vocab {
        scores,
        types,
        merges: merges.map(str::to_owned).into(),
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        ..Vocab::new(model, tokens)
    }
}

/// WordPiece with the word starts marked.
pub fn word_piece() -> Vocab {
    let tokens =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁a", "▁!", "▁中", "▁cafe", "▁z", "z"];
    let mut types = vec![TokenType::Control; 4];
    types.resize(tokens.len(), TokenType::Normal);
    Vocab {
        types,
        unk: Some(1),
        cls: Some(2),
        sep: Some(3),
        pad: Some(0),
        ..Vocab::new(ModelKind::WordPiece, tokens.map(str::to_owned).into())
    }
}

/// The ids of tokens by their text.
pub fn ids(tokenizer: &nibble_tokenizer::Tokenizer, tokens: &[&str]) -> Vec<u32> {
    tokens.iter().map(|t| tokenizer.token_to_id(t).unwrap_or_else(|| panic!("no token {t}"))).collect()
}
