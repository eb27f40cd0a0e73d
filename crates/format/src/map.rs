//! A file as shared bytes, without reading it: the one unsafe thing in this crate.
#![allow(unsafe_code)]

use crate::{Error, Problem};
use memmap2::Mmap;
use nibble_tensor::Bytes;
use std::{fs::File, path::Path};

/// Opens a file for reading. Only files: a pipe would wait for its other end, and a device may never end.
///
/// # Errors
/// [`Problem::Io`] if there is none or it cannot be opened, [`Problem::Expected`] for what is no file.
pub fn open(path: &Path) -> Result<File, Error> {
    let io = |error| Problem::Io(error).at_path(path);
    match std::fs::metadata(path).map_err(io)? {
        found if found.is_file() => File::open(path).map_err(io),
        found if found.is_dir() => Err(Problem::expected("a file", "a directory").at_path(path)),
        _ => {
            Err(Problem::expected("a file", "a pipe, socket or device; save it to a file first")
                .at_path(path))
        }
    }
}

/// Maps a file into memory, read-only.
///
/// The file must not be changed or cut while anything made from it lives: changed bytes show up in the weights, and a
/// read past a new end stops the process (SIGBUS). Replacing a file (write a new one, then rename) is safe.
///
/// # Errors
/// As [`crate::open`], and [`Problem::Io`] if the file cannot be mapped.
pub fn map(path: &Path) -> Result<Bytes, Error> {
    let io = |error| Problem::Io(error).at_path(path);
    let file = open(path)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is private to this process's reads and never written through; that nobody else changes the file
    // is the documented condition, which no program can check and every mapped reader has.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    // What is not in memory yet is then read in huge pages, on file systems that have them: weights come half as fast
    // again through them, and this map has a page fault where others have hundreds. A wish: without it all is the same.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(Bytes::from_owner(map))
}
