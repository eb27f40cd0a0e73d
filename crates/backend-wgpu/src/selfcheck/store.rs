//! What is known of a device's kernels, kept on disk for the next start.

use crate::tune::{MANY, Way};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// Where it is kept.
#[derive(Clone, Debug)]
pub struct Cache {
    /// A folder for what can be made again.
    pub folder: PathBuf,
    /// The build: what another one found out is not believed.
    pub build: String,
}

/// A file of one device. Any other content than that of this device, driver and build counts as none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    build: String,
    device: String,
    driver: String,
    /// Kernels that computed what they must, by [`crate::shader::Shader::key`].
    right: BTreeSet<String>,
    /// Kernels that did not.
    wrong: BTreeSet<String>,
    /// The fastest ways of kernels.
    tuned: BTreeMap<String, Way>,
}

/// What is known of a device's kernels.
#[derive(Debug)]
pub struct Store {
    path: Option<PathBuf>,
    file: File,
}

impl Store {
    /// What earlier starts found out; nothing without a cache.
    pub fn open(cache: Option<&Cache>, device: &str, driver: &str) -> Self {
        let build = cache.map(|cache| cache.build.clone()).unwrap_or_default();
        let nothing = File { build, device: device.into(), driver: driver.into(), ..File::default() };
        let Some(cache) = cache else { return Self { path: None, file: nothing } };
        let path = cache.folder.join(format!("gpu-{}.json", crate::shader::hash(&[device, driver])));
        let file = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<File>(&bytes).ok());
        let same = |file: &File| {
            [&file.build, &file.device, &file.driver] == [&nothing.build, &nothing.device, &nothing.driver]
        };
        let file = file.filter(same).unwrap_or(nothing);
        Self { path: Some(path), file }
    }

    /// Whether a kernel is right; `None` if it was never tried.
    pub fn verdict(&self, key: &str) -> Option<bool> {
        if self.file.wrong.contains(key) {
            return Some(false);
        }
        self.file.right.contains(key).then_some(true)
    }

    /// Kernels that are wrong.
    pub fn wrong(&self) -> &BTreeSet<String> {
        &self.file.wrong
    }

    /// The fastest ways of kernels.
    pub fn tuned(&self) -> &BTreeMap<String, Way> {
        &self.file.tuned
    }

    /// Notes the fastest way of a kernel.
    pub fn note_way(&mut self, key: &str, way: Way) {
        self.file.tuned.insert(key.into(), way);
    }

    /// Forgets all ways.
    pub fn forget_ways(&mut self) {
        self.file.tuned.clear();
    }

    /// What is known, a line each.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let (right, wrong) = (self.file.right.len(), self.file.wrong.len());
        if right + wrong == 0 {
            return vec![];
        }
        let mut all = vec![("tried kernels", format!("{right} right, {wrong} wrong and left out"))];
        all.extend(self.file.tuned.iter().map(|(key, [a, b])| match key.contains(MANY) {
            true => ("tuned", format!("{key}: tiles of {a} rows by {b} results")),
            false => ("tuned", format!("{key}: {a} at once, {b} ahead")),
        }));
        all
    }

    /// Notes whether a kernel is right.
    pub fn note(&mut self, key: String, right: bool) {
        if right {
            self.file.right.insert(key)
        } else {
            self.file.wrong.insert(key)
        };
    }

    /// Writes it down for the next start, which without it only takes longer.
    pub fn keep(&self) {
        if let Some(path) = &self.path {
            replace(path, &self.file).ok();
        }
    }
}

/// Nobody ever sees half a file: it is written beside its place, and moved there.
fn replace(path: &Path, file: &File) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, serde_json::to_vec(file)?)?;
    fs::rename(&part, path).inspect_err(|_| {
        fs::remove_file(&part).ok();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(store: &Store) -> [Option<bool>; 3] {
        ["a", "b", "c"].map(|key| store.verdict(key))
    }

    #[test]
    fn what_is_kept_is_believed_by_the_same_device_driver_and_build_alone() {
        let dir = nibble_testkit::TempDir::new("store");
        let cache = |build: &str| Cache { folder: dir.path().join("new"), build: build.into() };
        let mut store = Store::open(Some(&cache("1")), "gpu", "driver 1");
        store.note("a".into(), true);
        store.note("b".into(), false);
        store.keep();
        let open = |build: &str, device, driver| Store::open(Some(&cache(build)), device, driver);
        assert_eq!(names(&open("1", "gpu", "driver 1")), [Some(true), Some(false), None]);
        for other in [open("2", "gpu", "driver 1"), open("1", "gpu", "driver 2"), open("1", "g", "driver 1")]
        {
            assert_eq!(names(&other), [None; 3]);
        }
        assert_eq!(names(&Store::open(None, "gpu", "driver 1")), [None; 3]);
    }

    #[test]
    fn a_file_that_is_damaged_or_anothers_is_written_anew() {
        let dir = nibble_testkit::TempDir::new("damaged store");
        let cache = Cache { folder: dir.path().into(), build: "1".into() };
        let mut store = Store::open(Some(&cache), "gpu", "driver");
        store.note("a".into(), true);
        store.keep();
        let path = store.path.clone().unwrap();
        let whole = fs::read(&path).unwrap();
        let foreign = String::from_utf8(whole.clone()).unwrap().replace("\"gpu\"", "\"another\"");
        for bytes in [&whole[..whole.len() / 2], b"", b"\xff[]", b"{\"build\": \"1\"}", foreign.as_bytes()] {
            fs::write(&path, bytes).unwrap();
            let mut store = Store::open(Some(&cache), "gpu", "driver");
            assert_eq!(names(&store), [None; 3]);
            store.note("c".into(), true);
            store.keep();
            let again = Store::open(Some(&cache), "gpu", "driver");
            assert_eq!(names(&again), [None, None, Some(true)]);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
