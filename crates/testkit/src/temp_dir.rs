//! Folders for files that a test writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// An empty folder that is removed when the test ends.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// A folder for the test `name`, which no other test of the same process has.
    ///
    /// # Panics
    /// If the system does not let it be made.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nibble-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file of that name is or would be.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; returns where it is.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// The names of all that is in it, sorted.
    ///
    /// # Panics
    /// If it is gone.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
        names.sort();
        names
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
