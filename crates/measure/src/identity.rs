//! Who is measured: file, model, device, build. Two figures may be compared if these say so.

use crate::hash::{FileHash, Hashing, hash_files, sha256_of};
use nibble_api::{Activations, Backend, Error, Model, Options};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The build that measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The version.
    pub version: String,
    /// The commit, with `+changes` if a source that figures depend on differed; `unknown` outside of a checkout.
    pub commit: String,
    /// The profile: `release` or `debug`.
    pub profile: String,
}

impl Build {
    /// The build that this is.
    pub fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("NIBBLE_COMMIT").into(),
            profile: env!("NIBBLE_PROFILE").into(),
        }
    }
}

/// An encoding and its share of a model's weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecShare {
    /// The encoding's name.
    pub codec: String,
    /// The share of the weights (numbers, not bytes), 0 to 1.
    pub share: f64,
}

/// What a figure was made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The model as it was named.
    pub model: String,
    /// The model's SHA-256: of its file, or of the list of its files' hashes if there are several, as `sha256sum`
    /// prints it.
    pub sha256: String,
    /// The files.
    pub files: Vec<FileHash>,
    /// The architecture.
    pub architecture: String,
    /// Numbers in all weights.
    pub weights: u64,
    /// Their encodings, the largest share first.
    pub codecs: Vec<CodecShare>,
    /// Bits that a weight takes on average, scales and all.
    pub bits_per_weight: f64,
    /// The device: a processor's name.
    pub device: String,
    /// Its instruction set or driver.
    pub instructions: String,
    /// Threads that compute.
    pub threads: usize,
    /// How keys and values are kept.
    pub kv: String,
    /// How inputs of matrix products are kept: `auto` or `f32`.
    pub activations: String,
    /// The build.
    pub build: Build,
}

impl Identity {
    /// The identity of `model` on `backend` with `options`.
    ///
    /// # Errors
    /// If a file cannot be read again to make its hash.
    pub fn new(
        model: &Model,
        options: &Options,
        backend: &dyn Backend,
        hashing: &mut Hashing<'_>,
    ) -> Result<Self, Error> {
        let checkpoint = &model.checkpoint;
        let files = match checkpoint.files.is_empty() {
            true => vec![builtin(&checkpoint.path.to_string_lossy())],
            false => hash_files(checkpoint.files.iter().map(|(path, _)| path.as_path()), hashing)?,
        };
        let mut by_codec: BTreeMap<&str, u64> = BTreeMap::new();
        for tensor in checkpoint.tensors.values() {
            *by_codec.entry(tensor.name()).or_default() += tensor.shape().elements() as u64;
        }
        let weights: u64 = by_codec.values().sum();
        let per_weight = |n: f64| n / weights.max(1) as f64;
        let mut codecs: Vec<_> = by_codec
            .into_iter()
            .map(|(codec, n)| CodecShare { codec: codec.into(), share: per_weight(n as f64) })
            .collect();
        codecs.sort_by(|a, b| b.share.total_cmp(&a.share));
        let device = backend.device();
        Ok(Self {
            model: checkpoint.path.display().to_string(),
            sha256: combined(&files),
            files,
            architecture: checkpoint.architecture.clone(),
            weights,
            codecs,
            bits_per_weight: per_weight(checkpoint.weight_bytes() as f64 * 8.0),
            device: device.name,
            instructions: device.instructions,
            threads: device.threads,
            kv: options.kv.to_string(),
            activations: match options.activations {
                Activations::Auto => "auto".into(),
                Activations::I16 => "i16".into(),
                Activations::F32 => "f32".into(),
            },
            build: Build::this(),
        })
    }
}

/// The model that is part of the program, as a file.
fn builtin(name: &str) -> FileHash {
    let bytes = nibble_api::builtin_bytes();
    FileHash { name: name.into(), bytes: bytes.len() as u64, sha256: sha256_of(bytes) }
}

fn combined(files: &[FileHash]) -> String {
    match files {
        [one] => one.sha256.clone(),
        many => {
            let lines = many.iter().map(|file| format!("{}  {}\n", file.sha256, file.name));
            sha256_of(lines.collect::<String>().as_bytes())
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix: Vec<_> =
            self.codecs.iter().map(|c| format!("{} {:.1} %", c.codec, 100.0 * c.share)).collect();
        let s = if self.threads == 1 { "" } else { "s" };
        let Build { version, commit, profile } = &self.build;
        writeln!(f, "model    {}, {}, sha256 {}", self.model, self.architecture, self.sha256)?;
        writeln!(f, "weights  {}, {:.2} bits each: {}", self.weights, self.bits_per_weight, mix.join(", "))?;
        writeln!(f, "device   {}, {}, {} thread{s}", self.device, self.instructions, self.threads)?;
        writeln!(f, "memory   keys and values {}, activations {}", self.kv, self.activations)?;
        write!(f, "build    nibble {version}, commit {commit}, {profile}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &Model) -> Identity {
        let options = Options { threads: Some(2), ..Options::default() };
        let backend = model.backend(&options).unwrap();
        Identity::new(model, &options, backend.as_ref(), &mut Hashing::default()).unwrap()
    }

    #[test]
    fn an_identity_says_file_model_device_and_build() {
        let id = of(&Model::builtin().unwrap());
        assert_eq!((id.architecture.as_str(), id.threads, id.kv.as_str()), ("llama", 2, "f16"));
        assert_eq!((id.sha256.len(), id.files.len()), (64, 1));
        let shares: f64 = id.codecs.iter().map(|c| c.share).sum();
        assert!((shares - 1.0).abs() < 1e-9 && id.bits_per_weight > 1.0 && id.weights > 1_000_000);
        let text = id.to_string();
        for word in [&id.sha256, "llama", "2 threads", "f16", &id.build.commit, &id.instructions] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let back: Identity = serde_json::from_str(&serde_json::to_string(&id).unwrap()).unwrap();
        assert_eq!(back, id);
    }

    #[test]
    fn the_built_in_model_is_its_file() {
        let path = nibble_testkit::workspace_root().join("assets/story.gguf");
        let file = of(&Model::open(&path, &nibble_api::Registry::default()).unwrap());
        assert_eq!(of(&Model::builtin().unwrap()).sha256, file.sha256);
    }

    #[test]
    fn several_files_hash_as_the_list_of_their_hashes() {
        let file = |name: &str, sha256: &str| FileHash { name: name.into(), bytes: 1, sha256: sha256.into() };
        assert_eq!(combined(&[file("a", "12")]), "12");
        assert_eq!(combined(&[file("a", "12"), file("b", "34")]), sha256_of(b"12  a\n34  b\n"));
    }
}
