//! Stored log-probabilities of a text: what `nibble perplexity --save-logits` writes and `--kl` reads.
//!
//! The file is that of llama.cpp's `llama-perplexity --save-all-logits`, so each program reads what the other one wrote.
//! Little-endian: the 8 bytes `_logits_`; `n_ctx: u32`, `n_vocab: i32`, `n_chunk: i32`; `n_chunk * n_ctx` tokens as
//! `i32`, as they stand in the text; then for each chunk the rows of positions `n_ctx / 2` to `n_ctx - 2`. A row is
//! `scale: f32`, `min: f32` and a `u16` for each token (one more if their number is odd): the log-probability is
//! `min + scale * code`. Whatever is less likely than the likeliest token by more than 16 is raised to that.
//! Source: llama.cpp, tools/perplexity.

use nibble_api::{Error, Kind, log_sum_exp};
use nibble_tensor::Bytes;
use std::{
    io::{self, Write},
    path::Path,
};

const MAGIC: &[u8; 8] = b"_logits_";

/// How far below the likeliest token log-probabilities go.
pub const DEPTH: f32 = 16.0;

/// How far from 1 the probabilities of a row may sum to: those at the floor are too large by at most `e^-16` each, which is
/// 0.03 for 256 thousand tokens.
const SUM_TOLERANCE: f64 = 0.1;

/// What a file says before its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Tokens in a chunk.
    pub ctx: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// The text: whole chunks.
    pub tokens: Vec<u32>,
}

impl Head {
    /// Chunks.
    pub fn chunks(&self) -> usize {
        self.tokens.len() / self.ctx
    }

    /// The first position of a chunk that is stored.
    pub fn first(&self) -> usize {
        self.ctx / 2
    }

    /// Rows of a chunk: positions [`Self::first`] to `ctx - 2`.
    pub fn rows(&self) -> usize {
        self.ctx - 1 - self.first()
    }

    fn row_bytes(&self) -> usize {
        8 + self.vocab.next_multiple_of(2) * 2
    }

    /// Writes it.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        for number in [self.ctx, self.vocab, self.chunks()] {
            out.write_all(&(number as u32).to_le_bytes())?;
        }
        self.tokens.iter().try_for_each(|id| out.write_all(&id.to_le_bytes()))
    }
}

/// Writes a row of logits.
///
/// # Errors
/// As the writer's.
pub fn write_row(logits: &[f32], out: &mut dyn Write) -> io::Result<()> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min).max(max - DEPTH);
    let scale = (max - min) / 65535.0;
    let code = |x: f32| if scale > 0.0 { ((x - min) / scale).round().clamp(0.0, 65535.0) as u16 } else { 0 };
    let lowest = (f64::from(min) - log_sum_exp(logits)) as f32;
    let mut bytes = Vec::with_capacity(8 + logits.len() * 2 + 2);
    bytes.extend(scale.to_le_bytes());
    bytes.extend(lowest.to_le_bytes());
    bytes.extend(logits.iter().flat_map(|&x| code(x).to_le_bytes()));
    bytes.resize(8 + logits.len().next_multiple_of(2) * 2, 0);
    out.write_all(&bytes)
}

/// A file of log-probabilities, mapped.
#[derive(Debug)]
pub struct BaseFile {
    /// What it says before its rows.
    pub head: Head,
    rows: Bytes,
}

/// Whether a file is one, by its first bytes.
pub fn is_base_file(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 8];
    path.is_file()
        && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == *MAGIC
}

impl BaseFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Kind::Load`] if it is not of that form or cut.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = nibble_format::map_file(path)?;
        Self::parse(&bytes).map_err(|what| Error::new(Kind::Load, format!("{}: {what}", path.display())))
    }

    fn parse(bytes: &Bytes) -> Result<Self, String> {
        let cut = || {
            "expected log-probabilities of `nibble perplexity --save-logits`, found a file too short"
                .to_owned()
        };
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut)?;
        if magic != MAGIC {
            return Err("expected a file that starts with `_logits_`, found another".into());
        }
        let (words, _) = rest.as_chunks::<4>();
        let word = |i: usize| words.get(i).map(|word| u32::from_le_bytes(*word) as usize).ok_or_else(cut);
        let (ctx, vocab, chunks) = (word(0)?, word(1)?, word(2)?);
        // A context of two tokens has no position in its second half that a token follows.
        if ctx < 3 || vocab == 0 || vocab > i32::MAX as usize || chunks == 0 {
            return Err(format!(
                "expected chunks, a context and a vocabulary, found {chunks}, {ctx} and {vocab}"
            ));
        }
        let count = chunks.checked_mul(ctx).filter(|&n| n <= words.len() - 3).ok_or_else(cut)?;
        let tokens: Vec<_> = words[3..3 + count].iter().map(|word| u32::from_le_bytes(*word)).collect();
        let head = Head { ctx, vocab, tokens };
        let start = 8 + 4 * (3 + count);
        let needed = head.row_bytes().checked_mul(head.rows()).and_then(|n| n.checked_mul(chunks));
        let found = bytes.len() - start;
        match needed.filter(|&needed| needed <= found) {
            Some(needed) => Ok(Self { head, rows: bytes.slice(start..start + needed) }),
            None => Err(format!(
                "expected {chunks} chunks of {} rows, found {found} bytes, which is less",
                head.rows()
            )),
        }
    }

    /// The log-probabilities at position `head.first() + row` of a chunk.
    ///
    /// # Errors
    /// [`Kind::Load`] if they are none: the probabilities of a row sum to 1.
    ///
    /// # Panics
    /// If there is no such row, or `into` is not as long as the vocabulary.
    pub fn read(&self, chunk: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        assert!(row < self.head.rows() && into.len() == self.head.vocab);
        let len = self.head.row_bytes();
        let bytes = &self.rows[(chunk * self.head.rows() + row) * len..][..len];
        let (words, _) = bytes[..8].as_chunks::<4>();
        let [scale, min] = [0, 1].map(|i| f32::from_le_bytes(words[i]));
        let (codes, _) = bytes[8..].as_chunks::<2>();
        into.iter_mut()
            .zip(codes)
            .for_each(|(x, code)| *x = scale * f32::from(u16::from_le_bytes(*code)) + min);
        let sum = log_sum_exp(into).exp();
        if (sum - 1.0).abs() <= SUM_TOLERANCE {
            return Ok(());
        }
        let what = format!(
            "log-probabilities, chunk {chunk}, row {row}: expected probabilities that sum to 1, found {sum:.3e}; make the file again"
        );
        Err(Error::new(Kind::Load, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let head = Head { ctx: 4, vocab: 3, tokens: vec![0, 1, 2, 0, 1, 1, 2, 2] };
        let mut bytes = vec![];
        head.write(&mut bytes).unwrap();
        for chunk in 0..2 {
            write_row(&[1.0 + chunk as f32, 3.0, -40.0], &mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn rows_come_back_as_log_probabilities_with_a_floor() {
        let file = BaseFile::parse(&file().into()).unwrap();
        assert_eq!((file.head.chunks(), file.head.first(), file.head.rows()), (2, 2, 1));
        let mut row = [0.0; 3];
        file.read(1, 0, &mut row).unwrap();
        let total = log_sum_exp(&[2.0, 3.0, -40.0]) as f32;
        for (found, expected) in row.iter().zip([2.0 - total, 3.0 - total, 3.0 - 16.0 - total]) {
            assert!((found - expected).abs() < 2e-4, "{row:?}");
        }
    }

    #[test]
    fn equal_logits_are_all_equally_likely() {
        let mut bytes = vec![];
        write_row(&[2.0; 4], &mut bytes).unwrap();
        assert_eq!(bytes.len(), 16);
        assert_eq!(f32::from_le_bytes(bytes[..4].try_into().unwrap()), 0.0);
        let lowest = f32::from_le_bytes(bytes[4..8].try_into().unwrap());
        assert!((lowest + 4f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn rows_that_are_no_probabilities_are_refused() {
        let start = 8 + 4 * (3 + 8);
        for (at, value) in
            [(start, f32::NAN), (start, 1e30), (start, 0.0), (start + 4, 50.0), (start + 4, -90.0)]
        {
            let mut wrong = file();
            wrong[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let file = BaseFile::parse(&wrong.into()).unwrap();
            let error = file.read(0, 0, &mut [0.0; 3]).unwrap_err().to_string();
            assert!(error.contains("chunk 0, row 0") && error.contains("sum to 1"), "{value}: {error}");
            assert!(file.read(1, 0, &mut [0.0; 3]).is_ok());
        }
    }

    #[test]
    fn files_that_are_cut_or_lie_are_refused() {
        let whole = file();
        for len in 0..whole.len() {
            assert!(BaseFile::parse(&whole[..len].to_vec().into()).is_err(), "{len} bytes");
        }
        for (at, value) in
            [(8, 0u32), (8, 1), (8, 2), (16, 0), (12, 0), (12, u32::MAX), (16, u32::MAX), (8, u32::MAX)]
        {
            let mut wrong = whole.clone();
            wrong[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(BaseFile::parse(&wrong.into()).is_err(), "{value} at {at}");
        }
    }
}
