//! SHA-256 of model files, read as a stream and remembered, so that a large file is read once and not at every run.

use nibble_api::{Error, Kind, replace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// How files are hashed.
#[derive(Default)]
pub struct Hashing<'a> {
    /// A file that remembers hashes of files by path, length and time of change; `None` to read them each time.
    pub cache: Option<PathBuf>,
    /// Called now and then with bytes hashed and bytes in all; not called if everything is remembered.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

/// A file and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHash {
    /// Its name, without folders.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A remembered hash and what the file looked like then.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Remembered {
    bytes: u64,
    changed_ns: u64,
    sha256: String,
}

/// The hashes of `files`, in their order.
///
/// # Errors
/// [`Kind::Load`] if one cannot be read. A cache that cannot be read or written is only slower.
pub fn hash_files<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    hashing: &mut Hashing<'_>,
) -> Result<Vec<FileHash>, Error> {
    let files: Vec<_> = files.into_iter().map(looked_at).collect::<Result<_, _>>()?;
    let mut cache = hashing.cache.as_deref().map(remembered).unwrap_or_default();
    let known = |cache: &BTreeMap<String, Remembered>, file: &Looked| {
        let found = cache.get(&file.key)?;
        let same = found.bytes == file.bytes && Some(found.changed_ns) == file.changed_ns;
        same.then(|| found.sha256.clone())
    };
    let total: u64 = files.iter().filter(|f| known(&cache, f).is_none()).map(|f| f.bytes).sum();
    let mut done = 0;
    let mut hashes = vec![];
    for file in &files {
        let sha256 = match known(&cache, file) {
            Some(sha256) => sha256,
            None => {
                let sha256 = sha256(&file.path, &mut |bytes| {
                    done += bytes;
                    if let Some(progress) = &mut hashing.progress {
                        progress(done, total);
                    }
                })?;
                if let Some(changed_ns) = file.changed_ns {
                    let entry = Remembered { bytes: file.bytes, changed_ns, sha256: sha256.clone() };
                    cache.insert(file.key.clone(), entry);
                }
                sha256
            }
        };
        hashes.push(FileHash { name: file.name.clone(), bytes: file.bytes, sha256 });
    }
    if let (Some(path), true) = (&hashing.cache, total > 0) {
        remember(path, &cache).ok(); // the next run reads the files again
    }
    Ok(hashes)
}

/// The hash of bytes in memory.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

/// A file before it is read.
struct Looked {
    path: PathBuf,
    name: String,
    key: String,
    bytes: u64,
    changed_ns: Option<u64>,
}

fn looked_at(path: &Path) -> Result<Looked, Error> {
    let meta = fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    let changed = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(Looked {
        path: path.to_owned(),
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        key: path.canonicalize().unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned(),
        bytes: meta.len(),
        changed_ns: changed.and_then(|time| u64::try_from(time.as_nanos()).ok()),
    })
}

fn unreadable(path: &Path, e: &io::Error) -> Error {
    Error::new(Kind::Load, format!("{}: cannot be read to make its hash: {e}", path.display()))
}

fn sha256(path: &Path, read: &mut dyn FnMut(u64)) -> Result<String, Error> {
    let mut file = File::open(path).map_err(|e| unreadable(path, &e))?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex(hash.finalize().as_slice())),
            Ok(bytes) => {
                hash.update(&chunk[..bytes]);
                read(bytes as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(unreadable(path, &e)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remembered(cache: &Path) -> BTreeMap<String, Remembered> {
    fs::read(cache).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn remember(cache: &Path, entries: &BTreeMap<String, Remembered>) -> io::Result<()> {
    if let Some(folder) = cache.parent() {
        fs::create_dir_all(folder)?;
    }
    replace(cache, |e| e, |out| out.write_all(serde_json::to_string(entries)?.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::TempDir;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn hashes_are_those_of_the_standard() {
        let scratch = TempDir::new("measure-hash");
        let (empty, abc) = (scratch.file("empty"), scratch.file("abc"));
        fs::write(&empty, b"").unwrap();
        fs::write(&abc, b"abc").unwrap();
        let hashes = hash_files([empty.as_path(), abc.as_path()], &mut Hashing::default()).unwrap();
        assert_eq!(hashes[0].sha256, EMPTY);
        assert_eq!(hashes[1], FileHash { name: "abc".into(), bytes: 3, sha256: ABC.into() });
        assert_eq!(sha256_of(b"abc"), ABC);
    }

    #[test]
    fn a_remembered_file_is_not_read_and_a_changed_one_is() {
        let scratch = TempDir::new("measure-cache");
        let (file, cache) = (scratch.file("model"), scratch.file("deep/er/hashes.json"));
        fs::write(&file, b"abc").unwrap();
        let hash = |bytes_read: &mut u64| {
            let mut progress = |done, total| {
                assert!(done <= total);
                *bytes_read = done;
            };
            let mut hashing = Hashing { cache: Some(cache.clone()), progress: Some(&mut progress) };
            hash_files([file.as_path()], &mut hashing).unwrap().swap_remove(0).sha256
        };
        let (mut first, mut second, mut third) = (0, 0, 0);
        assert_eq!((hash(&mut first), first), (ABC.into(), 3));
        assert_eq!((hash(&mut second), second), (ABC.into(), 0));
        fs::write(&file, b"").unwrap();
        assert_eq!(hash(&mut third), EMPTY);
        fs::write(&cache, b"not json").unwrap();
        assert_eq!(hash(&mut third), EMPTY);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = hash_files([Path::new("nowhere.gguf")], &mut Hashing::default()).unwrap_err();
        assert!(error.to_string().starts_with("nowhere.gguf: cannot be read"), "{error}");
    }
}
