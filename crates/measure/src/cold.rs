//! Making things cold again: the processor's caches, and the system's copy of model files.

use std::{fs::File, path::Path};

/// Asks the system to forget its copy of files. Nothing may have them mapped, or it keeps what is mapped.
///
/// Returns what was done, in words for a report.
pub fn drop_page_cache<'a>(files: impl IntoIterator<Item = &'a Path>) -> String {
    for path in files {
        if let Err(why) = system::forget(path) {
            return format!("page cache kept: {}: {why}", path.display());
        }
    }
    system::DONE.into()
}

#[cfg(target_os = "linux")]
mod system {
    use super::{File, Path};
    use rustix::fs::{Advice, fadvise};

    pub const DONE: &str = "page cache of the model's files dropped (posix_fadvise)";

    pub fn forget(path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        // Only pages that are on disk are dropped.
        file.sync_data().map_err(|e| e.to_string())?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| e.to_string())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{File, Path};

    pub const DONE: &str = "page cache dropped";

    pub fn forget(path: &Path) -> Result<(), String> {
        File::open(path).map_err(|e| e.to_string())?;
        Err("this system lets nobody drop the pages of one file".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::TempDir;

    #[test]
    fn dropping_says_what_it_did() {
        let scratch = TempDir::new("measure-cold");
        let file = scratch.file("model");
        std::fs::write(&file, vec![1; 1 << 16]).unwrap();
        let said = drop_page_cache([file.as_path()]);
        assert!(said.contains("dropped") || said.contains("kept"), "{said}");
        assert_eq!(std::fs::read(&file).unwrap(), vec![1; 1 << 16]);
        let missing = drop_page_cache([Path::new("nowhere.gguf")]);
        assert!(missing.starts_with("page cache kept: nowhere.gguf"), "{missing}");
    }
}
