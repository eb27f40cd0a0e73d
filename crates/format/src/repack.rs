//! Matrices that must be written anew, because their file keeps codes and scales in an order that no kernel reads.
//!
//! Nothing is held twice: the source is a map that is given back afterwards, and the result counts as own memory.

use crate::{Error, Problem};
use memmap2::MmapMut;
use nibble_quant::{Codec, Encoded, byte_len};
use nibble_tensor::{Bytes, Shape};
use std::{ops::Range, sync::Mutex};

/// Rows that are written at once: sixteen words side by side are a cache line, and two of them share the work well.
const ROWS: usize = 32;

/// Writes the given rows, one after the other.
pub(crate) type Fill<'a> = Box<dyn Fn(Range<usize>, &mut [u8]) -> Result<(), Problem> + Sync + 'a>;

/// A matrix, or a stack of them, that is to be written.
pub(crate) struct Repack<'a> {
    /// What it becomes; rows are counted through all matrices.
    pub shape: Shape,
    pub codec: &'static dyn Codec,
    pub fill: Fill<'a>,
}

/// What becomes of the tensors of a module.
pub(crate) enum Piece<'a> {
    /// Its bytes are as a kernel reads them.
    InPlace(Encoded),
    /// They are not.
    Repack(Repack<'a>),
}

impl<'a> Repack<'a> {
    /// A matrix whose rows are to be `fill`ed.
    ///
    /// # Errors
    /// If a row splits a block.
    pub fn piece(
        shape: Shape,
        codec: &'static dyn Codec,
        fill: impl Fn(Range<usize>, &mut [u8]) -> Result<(), Problem> + Sync + 'a,
    ) -> Result<Piece<'a>, Problem> {
        Self::new(shape, codec, fill).map(Piece::Repack)
    }

    /// The same, for those who have no pieces.
    ///
    /// # Errors
    /// If a row splits a block.
    pub fn new(
        shape: Shape,
        codec: &'static dyn Codec,
        fill: impl Fn(Range<usize>, &mut [u8]) -> Result<(), Problem> + Sync + 'a,
    ) -> Result<Self, Problem> {
        byte_len(&shape, codec).map_err(Problem::Encoding)?;
        if shape.elements() == 0 {
            return Err(Problem::expected("a matrix with numbers", format!("shape {shape}")));
        }
        Ok(Self { shape, codec, fill: Box::new(fill) })
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        byte_len(&self.shape, self.codec).map_or(u64::MAX, |len| len as u64)
    }

    /// Writes it, on all cores.
    ///
    /// # Errors
    /// The first that a row has.
    pub fn run(&self, place: &str) -> Result<Encoded, Error> {
        let len = self.bytes() as usize;
        let strip_bytes = self.codec.strip_bytes(self.shape.row_len());
        // As many rows as all strips are made of.
        let rows = ROWS.next_multiple_of(self.codec.rows());
        let chunk = rows / self.codec.rows() * strip_bytes;
        let refused = |_| {
            Problem::Unsupported(format!("{len} bytes are needed to unpack it, and there are not so many"))
                .at(place)
        };
        let mut bytes = MmapMut::map_anon(len).map_err(refused)?;
        // As for mapped files: weights come half as fast again through huge pages, and without them all is the same.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        let chunks = Mutex::new(bytes.chunks_mut(chunk).enumerate());
        let failed = Mutex::new(None);
        let work = || {
            loop {
                let Some((index, out)) = chunks.lock().ok().and_then(|mut chunks| chunks.next()) else {
                    return;
                };
                let (first, count) = (index * rows, out.len() / strip_bytes * self.codec.rows());
                if let Err(problem) = (self.fill)(first..first + count, out) {
                    failed.lock().map(|mut failed| failed.get_or_insert(problem).to_string()).ok();
                    return;
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            (1..threads.min(len.div_ceil(1 << 20)).max(1)).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        match failed.into_inner() {
            Ok(None) => {
                let bytes = Bytes::from_owner(bytes.make_read_only().map_err(refused)?);
                Ok(Encoded::new(place, self.shape, self.codec, bytes)?.owned())
            }
            Ok(Some(problem)) => Err(problem.at(place)),
            Err(_) => Err(Problem::Overflow.at(place)),
        }
    }
}

/// Refuses what would take more memory than there is, before any of it is taken; `advice` says what else can be done.
///
/// # Errors
/// [`Problem::TooLarge`]
pub(crate) fn check_budget(needed: u64, budget: Option<u64>, advice: &str) -> Result<(), Error> {
    match budget {
        Some(budget) if needed > budget => {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let what = format!(
                "its matrices are packed in an order that must be changed in memory: {} MiB are needed, {} MiB available; \
                 {advice}",
                mib(needed),
                mib(budget)
            );
            Err(Problem::TooLarge(what).at("memory"))
        }
        _ => Ok(()),
    }
}

/// Numbers of `bits` bits (up to 8) that follow each other in the words, lowest bits first.
pub(crate) fn unpack(mut words: impl Iterator<Item = u32>, bits: usize, out: &mut [u8]) {
    let (mut window, mut have) = (0u64, 0);
    for out in out {
        if have < bits {
            window |= u64::from(words.next().unwrap_or(0)) << have;
            have += 32;
        }
        *out = window as u8 & (0xFF >> (8 - bits));
        window >>= bits;
        have -= bits;
    }
}

/// The 32-bit words of a row.
pub(crate) fn words_of(row: &[u8]) -> impl Iterator<Item = u32> {
    row.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// The words of column `column` of rows of `columns` words.
pub(crate) fn words_down(words: &[u8], columns: usize, column: usize) -> impl Iterator<Item = u32> {
    words.as_chunks::<4>().0.iter().skip(column).step_by(columns).map(|word| u32::from_le_bytes(*word))
}

/// The `bits` bits (up to 8) from bit `at` of a stream on, lowest first. Bits past its end are 0.
pub(crate) fn bits_at(stream: &[u8], at: usize, bits: usize) -> u8 {
    let byte = |i: usize| u16::from(stream.get(i).copied().unwrap_or(0));
    let window = byte(at / 8) | byte(at / 8 + 1) << 8;
    (window >> (at % 8)) as u8 & (0xFF >> (8 - bits))
}

/// The same of a stream that runs down column `column` of 32-bit words in rows of `columns`.
pub(crate) fn bits_down(words: &[u8], columns: usize, column: usize, at: usize, bits: usize) -> u8 {
    let byte = |i: usize| u16::from(words.get((i / 4 * columns + column) * 4 + i % 4).copied().unwrap_or(0));
    let window = byte(at / 8) | byte(at / 8 + 1) << 8;
    (window >> (at % 8)) as u8 & (0xFF >> (8 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::codec;

    #[test]
    fn codes_cross_bytes_and_words() {
        let numbers: Vec<u8> = (0..64u32).map(|i| (i * 5 % 8) as u8).collect();
        let stream = (0..192).map(|bit| numbers[bit / 3] >> (bit % 3) & 1);
        let bits: Vec<u8> = stream.collect();
        let bytes: Vec<u8> =
            bits.chunks(8).map(|b| b.iter().rev().fold(0, |byte, bit| byte << 1 | bit)).collect();
        assert!((0..64).all(|i| bits_at(&bytes, 3 * i, 3) == numbers[i]));
        let unpacked = |words: &mut dyn Iterator<Item = u32>| {
            let mut out = [9; 64];
            unpack(words, 3, &mut out);
            out.to_vec()
        };
        assert_eq!(unpacked(&mut words_of(&bytes)), numbers);
        // Two columns: the words of the stream, each beside a word of ones.
        let words: Vec<u8> =
            bytes.chunks(4).flat_map(|word| [[0xFF; 4], word.try_into().unwrap()].concat()).collect();
        assert_eq!(unpacked(&mut words_down(&words, 2, 1)), numbers);
        assert!((0..64).all(|i| bits_down(&words, 2, 1, 3 * i, 3) == numbers[i]));
        assert!((0..64).all(|i| bits_down(&words, 2, 0, 3 * i, 3) == 7));
    }

    #[test]
    fn every_row_is_filled_once_and_the_first_error_is_told() {
        let shape = Shape::from([1000, 3]);
        let fill = |rows: Range<usize>, out: &mut [u8]| {
            rows.zip(out.chunks_exact_mut(12))
                .for_each(|(row, out)| out[..4].copy_from_slice(&(row as f32).to_le_bytes()));
            Ok(())
        };
        let Ok(Piece::Repack(repack)) = Repack::piece(shape, codec("f32"), fill) else { panic!() };
        let tensor = repack.run("t").unwrap();
        assert!(tensor.is_owned());
        assert!(tensor.decode().chunks(3).enumerate().all(|(row, n)| n == [row as f32, 0.0, 0.0]));
        let fail = |_: Range<usize>, _: &mut [u8]| Err(Problem::Duplicate);
        let Ok(Piece::Repack(repack)) = Repack::piece(shape, codec("f32"), fail) else { panic!() };
        assert!(repack.run("t").unwrap_err().to_string().starts_with("t: "));
    }
}
