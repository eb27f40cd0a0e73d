//! The printable alphabet of byte-level BPE: each byte is written as one character.
//!
//! Printable Latin-1 bytes stand for themselves; the other 68, in order, for the characters from U+0100 on.
//! Source: the GPT-2 encoder.

/// The bytes that stand for themselves.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn table() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let (mut byte, mut moved) = (0, 0);
    while byte < 256 {
        chars[byte] = if is_itself(byte as u8) {
            byte as u8 as char
        } else {
            moved += 1;
            char::from_u32(0x100 + moved - 1).expect("below the surrogates")
        };
        byte += 1;
    }
    chars
}

static CHARS: [char; 256] = table();

/// The character that `byte` is written as.
pub(crate) fn char_of(byte: u8) -> char {
    CHARS[byte as usize]
}

/// The byte that `c` stands for, if `c` belongs to the alphabet.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        n @ 0..=0xFF => is_itself(n as u8).then_some(n as u8),
        n @ 0x100..0x144 => CHARS.iter().position(|&at| u32::from(at) == n).map(|byte| byte as u8),
        _ => None,
    }
}

/// The bytes that a token stands for; a token with a character outside the alphabet stands for itself.
pub(crate) fn decode(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
        assert_eq!((byte_of(' '), byte_of('\u{144}'), byte_of('▁')), (None, None, None));
    }

    #[test]
    fn a_token_outside_the_alphabet_is_plain_text() {
        assert_eq!(decode("Ġa"), b" a");
        assert_eq!(decode("a b"), b"a b");
        assert_eq!(decode("▁é"), "▁é".as_bytes());
    }
}
