//! mlx-lm, by a Python that has it.

use super::{Peer, Setup, Taken, output};
use crate::case::{Case, Task};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// What measures one row.
const SCRIPT: &str = include_str!("mlx_lm.py");

/// The peer.
pub struct MlxLm;

impl Peer for MlxLm {
    fn name(&self) -> &'static str {
        "mlx-lm"
    }

    fn locate(&self, given: Option<&Path>, setup: &Setup) -> Result<PathBuf, String> {
        if !setup.model.is_dir() {
            let model = setup.model.display();
            return Err(format!("{model}: it reads directories only; no ratio from different files"));
        }
        let python = given.unwrap_or(Path::new("python3"));
        let mut command = Command::new(python);
        command.args(["-c", "import mlx_lm"]);
        output(command).map_err(|why| format!("no Python with mlx-lm: {why}; name one with =PYTHON"))?;
        Ok(python.to_owned())
    }

    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        let task = match case.task {
            Task::Prefill if case.depth > 0 => {
                return Err("a prompt at a depth is not measured with mlx-lm".into());
            }
            Task::Prefill => "prefill",
            Task::Decode => "decode",
        };
        if case.batch > 1 {
            return Err("several sequences at once are not measured with mlx-lm".into());
        }
        let mut command = Command::new(program);
        command.args(["-c", SCRIPT]).arg(&setup.model).arg(task);
        command.args([case.tokens, case.depth, usize::from(setup.warmup)].map(|n| n.to_string()));
        let text = output(command)?.stdout;
        let last = text.lines().last().unwrap_or_default();
        let value: serde_json::Value =
            serde_json::from_str(last).map_err(|e| format!("mlx-lm: expected JSON on stdout: {e}"))?;
        let rate = value["tokens_per_s"].as_f64().filter(|rate| *rate > 0.0);
        Ok(Taken {
            tokens_per_s: rate.ok_or("mlx-lm: expected `tokens_per_s`, found none")?,
            version: value["version"].as_str().map(str::to_owned),
        })
    }
}
