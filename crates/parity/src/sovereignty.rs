//! No framework inside: neither among the dependencies nor among the linked symbols is a machine-learning framework or
//! a vendor's linear algebra.

use nibble_api::{Error, Kind};
use object::{Object, ObjectSymbol};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The workspace's lock file when this was built.
static LOCK: &str = include_str!("../../../Cargo.lock");

/// The package whose dependencies count: the one that people install, with everything that any feature, system, test
/// or build step of it needs.
const ROOT: &str = "nibble-cli";

/// Packages that are a framework, a binding to one, or linear algebra for one; also as the first words of a name.
static PACKAGES: &[&str] = &[
    "accelerate-src",
    "arrayfire",
    "autograd",
    "blas",
    "blas-src",
    "blis-src",
    "burn",
    "candle",
    "cblas",
    "coreml",
    "cubecl",
    "cublas",
    "cuda",
    "cudarc",
    "cudnn",
    "dfdx",
    "executorch",
    "faer",
    "gemm",
    "ggml",
    "intel-mkl-src",
    "intel-mkl-tool",
    "kalosm",
    "lapack",
    "lapack-src",
    "lapacke",
    "leaf",
    "libtorch",
    "llama-cpp",
    "llama_cpp",
    "llm",
    "luminal",
    "matrixmultiply",
    "mistralrs",
    "mkl",
    "mlx",
    "nalgebra-lapack",
    "ndarray-linalg",
    "netlib-src",
    "onednn",
    "onnx",
    "onnxruntime",
    "openblas",
    "openblas-build",
    "openblas-src",
    "openvino",
    "ort",
    "pyo3-torch",
    "rten",
    "rustnn",
    "sgemm",
    "tch",
    "tensorflow",
    "tensorrt",
    "tflite",
    "torch",
    "tract",
    "tvm",
    "webnn",
    "whisper-rs",
    "wonnx",
];

/// How symbols of such libraries start, without leading underscores.
static SYMBOLS: &[&str] = &[
    "ATen",
    "BLAS_",
    "BNNS",
    "MKL_",
    "MLModel",
    "MPSGraph",
    "MPSMatrix",
    "N4ggml",
    "ZN2at",
    "ZN3c10",
    "ZN3mlx",
    "ZN4dnnl",
    "ZN4ggml",
    "ZN5torch",
    "ZN10tensorflow",
    "ZN11onnxruntime",
    "ZN6tflite",
    "ZN8nvinfer1",
    "OrtGetApiBase",
    "TF_",
    "TfLite",
    "armpl_",
    "at::",
    "bli_",
    "blis_",
    "catlas_",
    "cblas_",
    "clblast",
    "cublas",
    "cudnn",
    "dnnl_",
    "dgemm_",
    "gguf_init",
    "ggml_",
    "hipblas",
    "lapack_",
    "llama_",
    "mkl_",
    "mlx_",
    "openblas_",
    "ov_core",
    "rocblas_",
    "sgemm_",
    "vDSP_",
    "vvexp",
];

/// Words in the names of such libraries.
static LIBRARIES: &[&str] = &[
    "Accelerate",
    "CoreML",
    "MLCompute",
    "MetalPerformanceShaders",
    "blas",
    "blis",
    "cudnn",
    "dnnl",
    "ggml",
    "lapack",
    "libllama",
    "libmlx",
    "mkl_",
    "libmkl",
    "onednn",
    "onnxruntime",
    "openvino",
    "tensorflow",
    "tflite",
    "libtorch",
    "libc10",
    "rocblas",
];

/// What was looked at and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sovereignty {
    /// Packages that the program is made from.
    pub dependencies: usize,
    /// Symbols of the program.
    pub symbols: usize,
    /// Libraries that it loads.
    pub libraries: usize,
    /// The packages, symbols and libraries that should not be there.
    pub foreign: Vec<String>,
    /// What could not be looked at, and why.
    pub not_verified: Option<String>,
}

impl Sovereignty {
    /// One line.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{} foreign in {} dependencies, {} symbols and {} libraries",
            self.foreign.len(),
            self.dependencies,
            self.symbols,
            self.libraries
        );
        if !self.foreign.is_empty() {
            text.push_str(&format!(": {}", self.foreign.join(", ")));
        }
        if let Some(why) = &self.not_verified {
            text.push_str(&format!("; not verified: {why}"));
        }
        text
    }
}

/// Looks at the program that is running.
pub fn check() -> Sovereignty {
    let file = std::env::current_exe().and_then(std::fs::read);
    check_program(LOCK, ROOT, file.map_err(|e| format!("the program's file: {e}")).as_deref())
}

/// Looks at a lock file, from package `root` on, and at the file of a program.
pub fn check_program(lock: &str, root: &str, program: Result<&[u8], &String>) -> Sovereignty {
    let mut found = Sovereignty::default();
    match dependencies(lock, root) {
        Ok(names) => {
            found.dependencies = names.len();
            found
                .foreign
                .extend(names.iter().filter(|name| is_framework(name)).map(|name| format!("package {name}")));
        }
        Err(e) => found.not_verified = Some(e.to_string()),
    }
    match program.map_err(ToString::to_string).and_then(linked) {
        Ok((symbols, _)) if symbols.is_empty() => {
            found.not_verified = Some("the program has no symbols".into())
        }
        Ok((symbols, libraries)) => {
            (found.symbols, found.libraries) = (symbols.len(), libraries.len());
            found.foreign.extend(foreign_symbols(symbols.iter().map(String::as_str)));
            let foreign = |library: &&String| LIBRARIES.iter().any(|word| library.contains(word));
            found
                .foreign
                .extend(libraries.iter().filter(foreign).map(|library| format!("library {library}")));
        }
        Err(why) => found.not_verified = Some(why),
    }
    found
}

/// Those of some symbols that belong to a framework, a few of each.
pub fn foreign_symbols<'a>(symbols: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut by_start: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for symbol in symbols {
        let bare = symbol.trim_start_matches('_');
        if let Some(start) = SYMBOLS.iter().find(|start| bare.starts_with(**start)) {
            by_start.entry(start).or_default().push(symbol);
        }
    }
    by_start.into_values().flat_map(|all| all.into_iter().take(3)).map(|s| format!("symbol {s}")).collect()
}

fn is_framework(name: &str) -> bool {
    let follows = |rest: &str| rest.is_empty() || rest.starts_with(['-', '_']);
    PACKAGES.iter().any(|package| name.strip_prefix(package).is_some_and(follows))
}

/// Everything that `root` depends on, by a lock file.
///
/// # Errors
/// [`Kind::Run`] if `root` is not in it.
pub fn dependencies(lock: &str, root: &str) -> Result<BTreeSet<String>, Error> {
    let packages = packages(lock);
    if !packages.contains_key(root) {
        let what = format!("Cargo.lock: expected package `{root}`, found {} others", packages.len());
        return Err(Error::new(Kind::Run, what));
    }
    let (mut seen, mut next) = (BTreeSet::new(), vec![root]);
    while let Some(name) = next.pop() {
        for &used in packages.get(name).into_iter().flatten() {
            if seen.insert(used.to_owned()) {
                next.push(used);
            }
        }
    }
    Ok(seen)
}

/// The packages of a lock file, each with those that it uses; versions of one name are one.
fn packages(lock: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let quoted = |line: &'static str, text: &mut &str| -> bool {
        text.strip_prefix(line).inspect(|rest| *text = rest).is_some()
    };
    for package in lock.split("[[package]]").skip(1) {
        let mut name = "";
        let mut used = vec![];
        for line in package.lines() {
            let mut text = line.trim();
            if quoted("name = \"", &mut text) {
                name = text.trim_end_matches('"');
            } else if line.starts_with(' ') && quoted("\"", &mut text) {
                used.extend(text.split([' ', '"']).next());
            }
        }
        packages.entry(name).or_default().extend(used);
    }
    packages
}

/// The symbols of a program and the libraries that it loads.
fn linked(program: &[u8]) -> Result<(Vec<String>, BTreeSet<String>), String> {
    let file = object::File::parse(program).map_err(|e| format!("the program's file: {e}"))?;
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let symbols =
        symbols.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).filter(|name| !name.is_empty());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let imports = file.imports().map_err(|e| format!("the program's imports: {e}"))?;
    let mut libraries: BTreeSet<String> = imports.flatten().map(|import| text(import.library())).collect();
    libraries.extend(needed(&file));
    libraries.remove("");
    Ok((symbols.collect(), libraries))
}

/// The libraries that an ELF file asks for: its imports do not say which one each comes from.
fn needed(file: &object::File<'_>) -> Vec<String> {
    use object::read::elf::{Dyn, FileHeader};
    fn of<Elf: FileHeader<Endian = object::Endianness>>(data: &[u8]) -> Option<Vec<String>> {
        let header = Elf::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let (entries, link) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, link).ok()?;
        let needed = entries.iter().filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED);
        let names = needed.filter_map(|entry| entry.string(endian, strings).ok());
        Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }
    use object::elf::{FileHeader32, FileHeader64};
    let names = match file {
        object::File::Elf64(file) => of::<FileHeader64<object::Endianness>>(file.data()),
        object::File::Elf32(file) => of::<FileHeader32<object::Endianness>>(file.data()),
        _ => None,
    };
    names.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_foreign_is_among_our_dependencies_and_symbols() {
        let found = check();
        assert_eq!((found.foreign.as_slice(), &found.not_verified), (&[][..], &None), "{}", found.summary());
        assert!(
            found.dependencies > 40 && found.symbols > 1000 && found.libraries > 0,
            "{}",
            found.summary()
        );
        let ours = dependencies(LOCK, ROOT).unwrap();
        for name in ["nibble-api", "nibble-backend-cpu", "half", "memmap2"] {
            assert!(ours.contains(name), "{name}");
        }
    }

    #[test]
    fn a_framework_anywhere_below_is_found() {
        let edge = "[[package]]\nname = \"half\"\nversion = \"9\"\ndependencies = [\n \"planted\",\n]\n\n";
        for name in ["candle-core", "burn", "openblas-src", "cudarc", "ort-sys", "matrixmultiply", "gemm-f16"]
        {
            let planted = format!(
                "{LOCK}\n{edge}[[package]]\nname = \"planted\"\ndependencies = [\n \"{name} 0.1.0\",\n]\n\n\
                 [[package]]\nname = \"{name}\"\nversion = \"0.1.0\"\n"
            );
            let found = check_program(&planted, ROOT, Err(&"not asked".into()));
            assert_eq!(found.foreign, [format!("package {name}")], "{}", found.summary());
        }
        let apart = format!("{LOCK}\n[[package]]\nname = \"candle-core\"\nversion = \"0.1.0\"\n");
        assert_eq!(
            check_program(&apart, ROOT, Err(&"not asked".into())).foreign,
            [""; 0],
            "nothing of ours uses it"
        );
    }

    #[test]
    fn foreign_symbols_are_found_and_ours_are_not() {
        for name in [
            "cblas_sgemm",
            "_cblas_dgemm",
            "ggml_mul_mat",
            "cublasSgemm_v2",
            "_BNNSFilterCreate",
            "_ZN2at6TensorC1Ev",
        ] {
            assert_eq!(foreign_symbols([name, "memcpy"].into_iter()), [format!("symbol {name}")]);
        }
        let ours =
            ["_ZN6nibble5llama5build17h0E", "_RNvNtCs1_12nibble_model5llama", "memcpy", "main", "expf"];
        assert_eq!(foreign_symbols(ours.into_iter()), [""; 0]);
    }

    #[test]
    fn names_are_matched_by_whole_words() {
        assert!(is_framework("burn-core") && is_framework("mlx_sys") && is_framework("blas"));
        assert!(!is_framework("burnish") && !is_framework("portable") && !is_framework("blake3"));
    }

    #[test]
    fn what_cannot_be_looked_at_is_said() {
        let found = check_program("", ROOT, Err(&"it is gone".into()));
        assert!(found.summary().contains("not verified"), "{}", found.summary());
        let found = check_program(LOCK, ROOT, Ok(&b"#!/bin/sh"[..]));
        assert!(found.not_verified.is_some());
    }
}
