//! Peers that are Python packages: a script of ours measures a row in their Python and prints one JSON object.

use super::{ANSWER, Setup, Taken, output};
use crate::case::{Case, Task};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A package and the script that measures with it.
pub struct Package {
    /// Its name for users.
    pub name: &'static str,
    /// What Python imports.
    pub module: &'static str,
    /// Reads model, task (`prefill` or `decode`), tokens, depth, sequences, whether to warm up (0 or 1), threads.
    pub script: &'static str,
    /// Whether it runs several sequences at once.
    pub batches: bool,
}

impl Package {
    /// A Python that has the package.
    pub fn locate(&self, given: Option<&Path>) -> Result<PathBuf, String> {
        let python = given.unwrap_or(Path::new("python3"));
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {}", self.module)]);
        output(command, ANSWER)
            .map_err(|why| format!("no Python with {}: {why}; name one with =PYTHON", self.name))?;
        Ok(python.to_owned())
    }

    /// Measures a row once.
    pub fn take(&self, python: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        let name = self.name;
        let task = match case.task {
            Task::Prefill if case.depth > 0 => {
                return Err(format!("a prompt at a depth is not measured with {name}"));
            }
            Task::Prefill => "prefill",
            Task::Decode => "decode",
        };
        if case.batch > 1 && !self.batches {
            return Err(format!("several sequences at once are not measured with {name}"));
        }
        let mut command = Command::new(python);
        command.args(["-c", self.script]).arg(&setup.model).arg(task);
        let numbers = [case.tokens, case.depth, case.batch, usize::from(setup.warmup), setup.threads];
        command.args(numbers.map(|n| n.to_string())).args(&setup.flags);
        let text = output(command, setup.limit)?.stdout;
        let last = text.lines().last().unwrap_or_default();
        let value: serde_json::Value =
            serde_json::from_str(last).map_err(|e| format!("{name}: expected JSON on stdout: {e}"))?;
        let rate = value["tokens_per_s"].as_f64().filter(|rate| *rate > 0.0);
        Ok(Taken {
            tokens_per_s: rate.ok_or_else(|| format!("{name}: expected `tokens_per_s`, found none"))?,
            version: value["version"].as_str().map(str::to_owned),
        })
    }
}
