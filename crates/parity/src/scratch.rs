//! A folder for files that another program writes for us; it is gone afterwards.

use nibble_api::{Error, Kind};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Self, Error> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nibble-parity-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| failed(&path, &e))?;
        Ok(Self(path))
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.file(name);
        std::fs::write(&path, text).map_err(|e| failed(&path, &e))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    Error::new(Kind::Run, format!("{}: cannot be written: {e}", path.display()))
}
