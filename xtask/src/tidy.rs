//! What the compiler does not check: the arrows between crates, the registries, where unsafe may stand.

use crate::run::{output, root};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Crates from the highest line to the lowest; a crate uses only crates on lower lines.
const LINES: &[&[&str]] = &[
    &["cli", "server", "python"],
    &["parity"],
    &["measure"],
    &["api"],
    &["engine", "backend-cpu", "backend-wgpu", "backend-reference"],
    &["model", "chat", "backend"],
    &["format", "tokenizer", "graph", "sampler"],
    &["quant"],
    &["tensor"],
];

/// Only used by tests and benches, so no arrow counts.
const DEV_ONLY: &[&str] = &["testkit", "bench"];

/// Crates that may hold unsafe code: kernels, the file map, the bridge to the GPU's driver.
const UNSAFE: &[&str] = &["backend-cpu", "backend-wgpu", "format"];

/// Where files stand for entries of a registry: the crate, the mark of such a file, the registry.
const REGISTRIES: &[(&str, &str, &str)] = &[
    ("quant", "impl Codec for ", "CODECS"),
    ("format", "impl Container for ", "CONTAINERS"),
    ("model", ": Architecture = ", "ARCHITECTURES"),
    ("parity", ": SideEntry = ", "SIDES"),
];

pub fn run() -> Result<(), String> {
    let mut problems = vec![];
    arrows(&mut problems)?;
    for (krate, mark, registry) in REGISTRIES {
        listed(krate, mark, registry, &mut problems)?;
    }
    ops(&mut problems)?;
    unsafe_code(&mut problems)?;
    if problems.is_empty() {
        println!("tidy: {} lines of crates, {} registries, all in order", LINES.len(), REGISTRIES.len());
        Ok(())
    } else {
        Err(problems.iter().map(|p| format!("tidy: {p}")).collect::<Vec<_>>().join("\n"))
    }
}

/// The line that a crate stands on, 0 the lowest.
fn line_of(krate: &str) -> Option<usize> {
    LINES.iter().rev().position(|line| line.contains(&krate))
}

fn arrows(problems: &mut Vec<String>) -> Result<(), String> {
    let text = output("cargo", &["metadata", "--format-version", "1", "--no-deps"])
        .ok_or("cargo metadata failed")?;
    let metadata: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    for package in packages {
        let Some(name) = package["name"].as_str().and_then(|n| n.strip_prefix("nibble-")) else { continue };
        if DEV_ONLY.contains(&name) {
            continue;
        }
        let Some(line) = line_of(name) else {
            problems.push(format!("crate `{name}` stands on no line of xtask/src/tidy.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().and_then(|n| n.strip_prefix("nibble-"));
            let (Some(used), true) = (used, dependency["kind"].is_null()) else { continue };
            if line_of(used).is_none_or(|l| l >= line) {
                problems.push(format!("`{name}` must not use `{used}`: arrows point to lower lines only"));
            }
        }
    }
    Ok(())
}

/// All Rust files below a folder.
fn sources(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![];
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Each file with the mark must be named in the registry.
fn listed(krate: &str, mark: &str, registry: &str, problems: &mut Vec<String>) -> Result<(), String> {
    let src = root().join("crates").join(krate).join("src");
    let lib = read(&src.join("lib.rs"))?;
    let start =
        lib.find(&format!("static {registry}: ")).ok_or(format!("{krate}: no registry {registry}"))?;
    let list = &lib[start..];
    let mut list = list[..list.find("];").unwrap_or(list.len())].to_owned();
    // Codecs that come in families are listed in a function beside the registry.
    if let Some(families) = lib.split("fn families()").nth(1) {
        list.push_str(families.split("\n}").next().unwrap_or_default());
    }
    for path in sources(&src)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "lib" || !read(&path)?.contains(mark) {
            continue;
        }
        let module = if name == "mod" {
            path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
        } else {
            name
        };
        if !list.contains(&format!("{module}::")) {
            problems
                .push(format!("{}: not listed in {registry} of crates/{krate}/src/lib.rs", path.display()));
        }
    }
    Ok(())
}

/// Each op that computes must have its meaning in backend-reference: a function of its name.
fn ops(problems: &mut Vec<String>) -> Result<(), String> {
    let op = read(&root().join("crates/graph/src/op.rs"))?;
    let names = op.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut meaning = String::new();
    for path in sources(&root().join("crates/backend-reference/src"))? {
        meaning.push_str(&read(&path)?);
    }
    for name in names.collect::<BTreeSet<_>>() {
        if !["tokens", "given"].contains(&name) && !meaning.contains(&format!("fn {name}(")) {
            problems.push(format!("op `{name}` has no function of that name in crates/backend-reference"));
        }
    }
    Ok(())
}

fn unsafe_code(problems: &mut Vec<String>) -> Result<(), String> {
    for krate in LINES.iter().copied().flatten().filter(|k| !UNSAFE.contains(k)) {
        let src = root().join("crates").join(krate).join("src");
        let main = ["lib.rs", "main.rs"].map(|f| src.join(f)).into_iter().find(|p| p.exists());
        let Some(main) = main else { continue };
        if !read(&main)?.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{}: lacks #![forbid(unsafe_code)]", main.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_the_bottom() {
        assert_eq!(line_of("tensor"), Some(0));
        assert!(line_of("cli") > line_of("api"));
        assert_eq!(line_of("nothing"), None);
    }

    #[test]
    fn the_checkout_is_tidy() {
        run().unwrap();
    }
}
