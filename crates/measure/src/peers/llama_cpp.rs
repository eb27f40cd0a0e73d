//! llama.cpp, by its `llama-bench`.

use super::{
    Peer, Setup, Taken,
    llama_bench::{self, Dialect, Row, arguments, lengths},
};
use crate::case::Case;
use std::path::{Path, PathBuf};

/// Flash attention on, as that is its fastest; weights repacked, which is its default.
const DIALECT: Dialect = Dialect {
    flags: &["-fa", "on"],
    batched_flags: &["-fa", "on"],
    no_warmup: &["--no-warmup"],
    at_depth: |case| {
        let (prompt, generate) = lengths(case);
        let mut args = arguments(prompt, generate);
        args.extend(["-d".into(), case.depth.to_string()]);
        Some(Row { args, result: [prompt, generate, case.depth] })
    },
};

/// The peer.
pub struct LlamaCpp;

impl Peer for LlamaCpp {
    fn name(&self) -> &'static str {
        "llama.cpp"
    }

    fn locate(&self, given: Option<&Path>, _setup: &Setup) -> Result<PathBuf, String> {
        llama_bench::locate(given)
    }

    fn version(&self, program: &Path) -> Option<String> {
        llama_bench::version(program)
    }

    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        llama_bench::take(program, case, setup, &DIALECT)
    }
}
