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
    io::Read,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
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
    /// The longest that a take may last, its load included.
    pub limit: Duration,
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

/// How long a program may take to say what it is; a Python that imports a framework for the first time needs half a minute.
const ANSWER: Duration = Duration::from_secs(120);

/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(20);

/// Runs a program to its end; it must succeed.
fn output(command: Command, limit: Duration) -> Result<Printed, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (status, printed) = run(command, limit)?;
    if status.success() {
        return Ok(printed);
    }
    let last = printed.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{name}: {status}: {}", last.trim()))
}

/// Whether a program can be started and ends; its words and its exit status do not matter.
fn starts(program: &Path, arg: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(arg);
    run(command, ANSWER).is_ok()
}

/// Runs a program until it ends, or stops it when `limit` is over; programs that it started in turn are left alone.
fn run(mut command: Command, limit: Duration) -> Result<(ExitStatus, Printed), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{name}: cannot be started: {e}"))?;
    // Read beside it, as it waits when nobody does.
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let left = || limit.saturating_sub(start.elapsed());
    let mut status = child.try_wait();
    while matches!(status, Ok(None)) && !left().is_zero() {
        thread::sleep(POLL);
        status = child.try_wait();
    }
    let status = status.map_err(|e| format!("{name}: {e}"))?;
    let text = |printed: Receiver<String>| printed.recv_timeout(left().max(POLL)).ok();
    if let (Some(status), Some(stdout), Some(stderr)) = (status, text(stdout), text(stderr)) {
        return Ok((status, Printed { stdout, stderr }));
    }
    let _ = child.kill(); // fails if it has ended
    let _ = child.wait();
    Err(format!("{name}: stopped, as it was not done after {} s", limit.as_secs_f64()))
}

/// All that comes from a stream, once it ends.
fn read(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is; nobody may wait for it any more.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
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
            limit: Duration::from_secs(1),
        };
        for each in PEERS {
            assert!(std::ptr::addr_eq(peer(each.name()).unwrap(), *each), "{}", each.name());
            let why = each.locate(Some(Path::new("/nowhere/at/all")), &setup).unwrap_err();
            assert!(why.contains("/nowhere/at/all") || why.contains("model.gguf"), "{why}");
        }
        assert!(peer("abacus").is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_does_not_end_is_stopped() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let limit = Duration::from_millis(200);
        // The second ends, but something that it started holds its streams open.
        for script in ["exec sleep 600", "sleep 30 & exit 0"] {
            let start = Instant::now();
            let why = run(shell(script), limit).map(|_| ()).unwrap_err();
            assert_eq!(why, "sh: stopped, as it was not done after 0.2 s");
            assert!(start.elapsed() >= limit);
        }
        // More than a pipe holds, on both streams.
        let much = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 3";
        let (status, printed) = run(shell(much), Duration::from_secs(60)).unwrap();
        assert_eq!((status.code(), printed.stdout.len(), printed.stderr.len()), (Some(3), 300_000, 300_000));
    }
}
