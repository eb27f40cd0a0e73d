//! Where it is kept what can be made again.

use nibble_api::Cache;
use nibble_measure::Build;
use std::path::PathBuf;

/// The user's folder for what can be made again.
pub fn dir() -> Option<PathBuf> {
    let home = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = if cfg!(target_os = "macos") {
        home("HOME").map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        home("LOCALAPPDATA")
    } else {
        home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")))
    };
    base.map(|base| base.join("nibble"))
}

/// Where it is kept what was found out about devices.
pub fn devices() -> Option<Cache> {
    let Build { version, commit, profile } = Build::this();
    dir().map(|folder| Cache { folder, build: format!("{version} {commit} {profile}") })
}
