//! Other programs that run models, for comparisons: one file each.
//!
//! A peer runs the same file in the same minute. What it cannot run like us it refuses, with the reason; there is no
//! ratio then.

mod ik_llama_cpp;
mod llama_bench;
mod llama_cpp;
mod mlx_lm;
mod openvino;
mod python;

use crate::case::Case;
use nibble_api::KvType;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Every peer.
pub static PEERS: &[&dyn Peer] =
    &[&llama_cpp::LlamaCpp, &ik_llama_cpp::IkLlamaCpp, &openvino::OpenVino, &mlx_lm::MlxLm];

/// A program that runs models.
pub trait Peer: Sync {
    /// The name that users type.
    fn name(&self) -> &'static str;

    /// What to run, from what the user gave: a program or a folder with it. Without, it is looked for on the path.
    ///
    /// # Errors
    /// One sentence if it is not there, or does not run this model.
    fn locate(&self, given: Option<&Path>, setup: &Setup) -> Result<PathBuf, String>;

    /// What the program says of its version when it is asked; takes may say more.
    fn version(&self, _program: &Path) -> Option<String> {
        None
    }

    /// Measures a row once.
    ///
    /// # Errors
    /// One sentence if it cannot measure such a row, or failed.
    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String>;
}

/// What both sides have in common.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The model.
    pub model: PathBuf,
    /// Threads.
    pub threads: usize,
    /// How keys and values are kept.
    pub kv: KvType,
    /// The most tokens of a prompt in one step.
    pub chunk: usize,
    /// Whether the peer, too, may run before it is measured.
    pub warmup: bool,
    /// Further arguments for the peer.
    pub flags: Vec<String>,
}

/// What a peer measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Tokens per second, all sequences together.
    pub tokens_per_s: f64,
    /// What it says of its version.
    pub version: Option<String>,
}

/// The peer of that name.
pub fn peer(name: &str) -> Option<&'static dyn Peer> {
    PEERS.iter().copied().find(|peer| peer.name() == name)
}

/// What a program printed.
struct Printed {
    stdout: String,
    stderr: String,
}

/// Runs a program to its end.
fn output(mut command: Command) -> Result<Printed, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: cannot be started: {e}"))?;
    let [stdout, stderr] =
        [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if out.status.success() {
        return Ok(Printed { stdout, stderr });
    }
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{name}: {}: {}", out.status, last.trim()))
}

/// Whether a program can be started; its words and its exit status do not matter.
fn starts(program: &Path, arg: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(arg).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_absent_peers_say_so() {
        let setup = Setup {
            model: "model.gguf".into(),
            threads: 1,
            kv: KvType::F16,
            chunk: 512,
            warmup: false,
            flags: vec![],
        };
        for each in PEERS {
            assert!(std::ptr::addr_eq(peer(each.name()).unwrap(), *each), "{}", each.name());
            let why = each.locate(Some(Path::new("/nowhere/at/all")), &setup).unwrap_err();
            assert!(why.contains("/nowhere/at/all") || why.contains("model.gguf"), "{why}");
        }
        assert!(peer("abacus").is_none());
    }
}
