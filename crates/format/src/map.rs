//! A file as shared bytes, without reading it: the one unsafe thing in this crate.
#![allow(unsafe_code)]

use crate::{Error, Problem};
use memmap2::Mmap;
use nibble_tensor::Bytes;
use std::{fs::File, path::Path};

/// Maps a file into memory, read-only.
///
/// The file must not be changed or cut while anything made from it lives: changed bytes show up in the weights, and a
/// read past a new end stops the process (SIGBUS). Replacing a file (write a new one, then rename) is safe.
///
/// # Errors
/// [`Problem::Io`] if the file cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Bytes, Error> {
    let io = |error| Problem::Io(error).at_path(path);
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is private to this process's reads and never written through; that nobody else changes the file
    // is the documented condition, which no program can check and every mapped reader has.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::from_owner(map))
}
