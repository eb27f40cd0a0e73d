//! ik_llama.cpp, a fork of llama.cpp whose programs have the same names.

use super::{
    Peer, Setup, Taken,
    llama_bench::{self, Dialect, Row, arguments},
};
use crate::case::{Case, Task};
use std::path::{Path, PathBuf};

/// Weights repacked at load and flash attention on, which is its fastest.
const DIALECT: Dialect = Dialect {
    flags: &["-rtr", "1", "-fa", "1"],
    batched_flags: &["-rtr", "-fa", "1"],
    no_warmup: &["-w", "0"],
    at_depth: |case| match case.task {
        // It reads prompts only from the start.
        Task::Prefill => None,
        Task::Decode => {
            let mut args = arguments(0, 0);
            args.extend(["-gp".into(), format!("{},{}", case.depth, case.tokens)]);
            Some(Row { args, result: [case.depth, case.tokens, 0] })
        }
    },
};

/// The peer.
pub struct IkLlamaCpp;

impl Peer for IkLlamaCpp {
    fn name(&self) -> &'static str {
        "ik_llama.cpp"
    }

    fn locate(&self, given: Option<&Path>, _setup: &Setup) -> Result<PathBuf, String> {
        match given {
            Some(_) => llama_bench::locate(given),
            None => Err("its programs are named like llama.cpp's; name its folder with =PATH".into()),
        }
    }

    fn version(&self, program: &Path) -> Option<String> {
        llama_bench::version(program)
    }

    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        llama_bench::take(program, case, setup, &DIALECT)
    }
}
