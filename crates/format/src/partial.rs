//! Writing a large file piece by piece, so that work which was interrupted can go on.
//!
//! Pieces go to `NAME.partial`, one after the other. For each finished one, `NAME.partial.journal` gets a line: the key of
//! what it was made from, a hash and the number of its bytes, and a note, which the hash covers too. Whoever writes the same file again asks
//! for each piece whether it is there; it is if its key is the same and its bytes still have that hash, so neither
//! another input nor a power cut can mix anything. When all are there the file is moved to its name.

use crate::{Error, Problem, replace::target};
use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// A hash of everything that the bytes of a piece depend on.
pub type Key = [u8; 32];

/// A file that is being written.
pub struct Partial {
    target: PathBuf,
    partial: PathBuf,
    data: BufWriter<File>,
    /// None for what is no file, such as a pipe: that is written to directly.
    journal: Option<(PathBuf, File)>,
    /// What an earlier writer finished and nobody has asked for yet.
    found: VecDeque<Record>,
    /// Bytes of the journal that count.
    journal_len: u64,
    /// Bytes of the finished pieces.
    done: u64,
    hasher: blake3::Hasher,
    written: u64,
}

struct Record {
    key: String,
    hash: String,
    len: u64,
    note: String,
    /// Bytes of its line.
    line: u64,
}

impl Partial {
    /// Starts to write `path`, or goes on with what was left there. A link is followed.
    ///
    /// # Errors
    /// If the files cannot be made, another process is writing them, or there is a `NAME.partial` of someone else.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let target = target(path);
        let device = fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir());
        let partial = if device { target.clone() } else { with_ending(&target, ".partial") };
        let io = |e: io::Error| Problem::Io(e).at_path(&partial);
        let mut options = File::options();
        options.read(!device).write(true).create(!device).truncate(false);
        let data = options.open(&partial).map_err(io)?;
        let (mut journal, mut found) = (None, VecDeque::new());
        if !device {
            // Where the file system has no locks, nobody is kept out.
            if matches!(data.try_lock(), Err(fs::TryLockError::WouldBlock)) {
                let what = "is being written by another process; wait for it or choose another name";
                return Err(Problem::Unsupported(what.into()).at_path(&partial));
            }
            let path = with_ending(&target, ".partial.journal");
            if !path.exists() && data.metadata().map_err(io)?.len() > 0 {
                let what = "is there already, without a journal; move it away or choose another name";
                return Err(Problem::Unsupported(what.into()).at_path(&partial));
            }
            let io = |e: io::Error| Problem::Io(e).at_path(&path);
            let mut file = options.open(&path).map_err(io)?;
            let mut bytes = vec![];
            file.read_to_end(&mut bytes).map_err(io)?;
            found = records(&bytes);
            journal = Some((path, file));
        }
        let hasher = blake3::Hasher::new();
        let data = BufWriter::with_capacity(1 << 20, data);
        Ok(Self { target, partial, data, journal, found, journal_len: 0, done: 0, hasher, written: 0 })
    }

    /// Whether the next piece is there, made from what `key` stands for; then its note.
    ///
    /// If it is not, nothing behind it is either: it must be written, and then [`Partial::commit`] told.
    ///
    /// # Errors
    /// If the file cannot be read or cut.
    pub fn finished(&mut self, key: impl FnOnce() -> Key) -> Result<Option<String>, Error> {
        let next = self.found.pop_front();
        if let Some(record) = &next
            && record.key == hex(key())
            && self.holds(record).map_err(|e| self.error(e))?
        {
            self.done += record.len;
            self.journal_len += record.line;
            return Ok(next.map(|record| record.note));
        }
        self.found.clear();
        self.cut().map_err(|e| self.error(e))?;
        Ok(None)
    }

    /// That the piece just written is whole. `note`, one line, comes back from [`Partial::finished`].
    ///
    /// # Errors
    /// If what is buffered cannot be written.
    pub fn commit(&mut self, key: Key, note: &str) -> io::Result<()> {
        self.data.flush()?;
        self.hasher.update(note.as_bytes());
        let hash = self.hasher.finalize().to_hex();
        let line = format!("{} {hash} {} {note}\n", hex(key), self.written);
        if let Some((_, journal)) = &mut self.journal {
            journal.write_all(line.as_bytes())?;
        }
        self.journal_len += line.len() as u64;
        self.done += self.written;
        self.written = 0;
        self.hasher.reset();
        Ok(())
    }

    /// Moves the file to its name; what was there is replaced.
    ///
    /// # Errors
    /// If the system cannot.
    pub fn finish(mut self) -> Result<(), Error> {
        self.data.flush().map_err(|e| self.error(e))?;
        let Some((journal, _)) = &self.journal else { return Ok(()) };
        let synced = self.data.get_ref().sync_all();
        synced.and_then(|()| fs::rename(&self.partial, &self.target)).map_err(|e| self.error(e))?;
        fs::remove_file(journal).ok(); // it only says what is in a file that is gone
        Ok(())
    }

    /// Deletes what there is.
    pub fn discard(self) {
        if let Some((journal, _)) = &self.journal {
            fs::remove_file(journal).ok();
            fs::remove_file(&self.partial).ok();
        }
    }

    /// Where the pieces are until all are there; none for what is written to directly.
    pub fn path(&self) -> Option<&Path> {
        self.journal.as_ref().map(|_| self.partial.as_path())
    }

    /// That it cannot be written.
    pub fn error(&self, error: io::Error) -> Error {
        Problem::Io(error).at_path(&self.partial)
    }

    /// Whether the bytes of a piece, behind those that are finished, are the ones that were written.
    fn holds(&mut self, record: &Record) -> io::Result<bool> {
        let file = self.data.get_mut();
        file.seek(SeekFrom::Start(self.done))?;
        let mut hasher = blake3::Hasher::new();
        let (mut left, mut buffer) = (record.len, vec![0; 1 << 20]);
        while left > 0 {
            let count = file.read(&mut buffer[..left.min(1 << 20) as usize])?;
            if count == 0 {
                return Ok(false);
            }
            hasher.update(&buffer[..count]);
            left -= count as u64;
        }
        hasher.update(record.note.as_bytes());
        Ok(hasher.finalize().to_hex().as_str() == record.hash)
    }

    /// Takes away everything behind the finished pieces, and goes there.
    fn cut(&mut self) -> io::Result<()> {
        let Some((_, journal)) = &mut self.journal else { return Ok(()) };
        self.data.flush()?;
        let file = self.data.get_mut();
        if file.metadata()?.len() != self.done || journal.metadata()?.len() != self.journal_len {
            journal.set_len(self.journal_len)?; // first: it must never say more than there is
            file.set_len(self.done)?;
        }
        file.seek(SeekFrom::Start(self.done))?;
        journal.seek(SeekFrom::Start(self.journal_len)).map(drop)
    }
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.data.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.data.flush()
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn hex(key: Key) -> String {
    blake3::Hash::from_bytes(key).to_hex().to_string()
}

/// The lines of a journal, up to the first one that is damaged or was not written to its end.
fn records(bytes: &[u8]) -> VecDeque<Record> {
    let record = |line: &[u8]| {
        let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let mut words = text.splitn(4, ' ').map(str::to_owned);
        let (key, hash) = (words.next()?, words.next()?);
        let len = words.next()?.parse().ok()?;
        Some(Record { key, hash, len, note: words.next()?, line: line.len() as u64 })
    };
    bytes.split_inclusive(|&b| b == b'\n').map_while(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::TempDir;

    const PIECES: [&str; 4] = ["head", "first piece", "", "the third"];

    fn key(piece: &str) -> Key {
        blake3::hash(piece.as_bytes()).into()
    }

    /// Writes pieces, at most `count` new ones, and returns the notes of those that were there.
    fn write(path: &Path, pieces: &[&str], count: usize) -> Vec<String> {
        let (mut file, mut there, mut new) = (Partial::open(path).unwrap(), vec![], 0);
        for piece in pieces {
            if let Some(note) = file.finished(|| key(piece)).unwrap() {
                there.push(note);
                continue;
            }
            if new == count {
                file.write_all(b"half of a piece").unwrap();
                file.flush().unwrap();
                return there; // as if it had been killed
            }
            new += 1;
            file.write_all(piece.as_bytes()).unwrap();
            file.commit(key(piece), &format!("a note on {piece}")).unwrap();
        }
        file.finish().unwrap();
        there
    }

    #[test]
    fn work_goes_on_behind_the_last_whole_piece() {
        let dir = TempDir::new("partial-goes-on");
        let path = dir.file("out");
        fs::write(&path, "old").unwrap();
        assert!(write(&path, &PIECES, 2).is_empty());
        assert_eq!(write(&path, &PIECES, 1), ["a note on head", "a note on first piece"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(write(&path, &PIECES, 9).len(), 3);
        assert_eq!(fs::read_to_string(&path).unwrap(), PIECES.concat());
        assert_eq!(dir.names().len(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_was_made_from_something_else_or_is_damaged_is_made_again() {
        let dir = TempDir::new("partial-changed");
        let path = dir.file("out");
        let partial = with_ending(&path, ".partial");
        let journal = with_ending(&path, ".partial.journal");
        let other = ["head", "another piece", "", "the third"];
        let cut = |by: usize| {
            let text = fs::read(&journal).unwrap();
            fs::write(&journal, &text[..text.len() - by]).unwrap();
        };
        let flip = || {
            let mut bytes = fs::read(&partial).unwrap();
            bytes[6] ^= 1; // in the first piece
            fs::write(&partial, bytes).unwrap();
        };
        let swap = || {
            let text = fs::read_to_string(&journal).unwrap();
            fs::write(&journal, text.replace("note on first", "word on first")).unwrap();
        };
        let nothing: &dyn Fn() = &|| {};
        let cases = [
            (nothing, &other, 1),
            (&swap, &PIECES, 1),
            (&|| cut(1), &PIECES, 2),
            (&flip, &PIECES, 1),
            (&|| fs::write(&journal, "no journal at all").unwrap(), &PIECES, 0),
        ];
        for (change, pieces, kept) in cases {
            write(&path, &PIECES, 3);
            change();
            assert_eq!(write(&path, pieces, 9).len(), kept);
            assert_eq!(fs::read_to_string(&path).unwrap(), pieces.concat());
        }
    }

    #[test]
    fn a_file_of_someone_else_is_not_touched() {
        let dir = TempDir::new("partial-foreign");
        let path = dir.file("out");
        let foreign = with_ending(&path, ".partial");
        fs::write(&foreign, "half of a download").unwrap();
        let error = Partial::open(&path).err().unwrap().to_string();
        assert!(error.contains("out.partial: is there already, without a journal"), "{error}");
        assert_eq!(fs::read_to_string(&foreign).unwrap(), "half of a download");
    }

    #[test]
    fn two_writers_of_one_file_are_kept_apart() {
        let dir = TempDir::new("partial-locked");
        let path = dir.file("out");
        let first = Partial::open(&path).unwrap();
        let error = Partial::open(&path).err().unwrap().to_string();
        assert!(error.contains("being written by another process"), "{error}");
        first.discard();
        assert_eq!(dir.names().len(), 0);
    }
}
