//! Files that a command is asked to write.

use nibble_api::{Error, Kind};
use std::path::Path;

/// Says before minutes of work that `output` has no place, or that it would replace the model that is read.
///
/// # Errors
/// [`Kind::Run`] for a folder in its place or a folder that is not there, [`Kind::Usage`] for the model itself.
pub fn check(output: &Path, model: Option<&Path>) -> Result<(), Error> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if output.is_dir() {
        return Err(unwritable(output, "expected the name of a file, found a folder"));
    }
    if !folder.is_none_or(Path::is_dir) {
        return Err(unwritable(output, "its folder is not there; make it first or choose another"));
    }
    let model = model.and_then(|path| path.canonicalize().ok());
    match (output.canonicalize(), model) {
        (Ok(found), Some(model)) if found.starts_with(&model) => {
            let what = format!("{}: is the model that is read; choose another name", output.display());
            Err(Error::new(Kind::Usage, what))
        }
        _ => Ok(()),
    }
}

/// That `output` cannot be written, and why.
pub fn unwritable(output: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Run, format!("{}: cannot be written: {why}", output.display()))
}
