//! The family of `llama-bench`: one sequence by `llama-bench`, several by `llama-batched-bench` beside it.

use super::{ANSWER, Setup, Taken, output, starts};
use crate::case::{Case, Task};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The program of one sequence.
const BENCH: &str = "llama-bench";

/// The program of several.
const BATCHED: &str = "llama-batched-bench";

/// `llama-bench` as given: itself, or in a folder or its `build/bin`; else on the path.
pub fn locate(given: Option<&Path>) -> Result<PathBuf, String> {
    let Some(given) = given else {
        let found = PathBuf::from(BENCH);
        return match starts(&found, "--help") {
            true => Ok(found),
            false => Err(format!("{BENCH} is not on the path; name it with =PATH")),
        };
    };
    let places = [given.to_owned(), given.join(BENCH), given.join("build/bin").join(BENCH)];
    let found = places.into_iter().find(|path| path.is_file() && starts(path, "--help"));
    found.ok_or_else(|| format!("{}: expected {BENCH} or a folder with it", given.display()))
}

/// What the program says to `--version`, which not every member of the family knows.
pub fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version");
    let printed = output(command, ANSWER).ok()?;
    let mut lines = printed.stdout.lines().chain(printed.stderr.lines());
    lines.find_map(|line| line.strip_prefix("version: ")).map(|version| version.trim().to_owned())
}

/// How a member of the family is told things.
pub struct Dialect {
    /// What makes it fastest, for [`BENCH`].
    pub flags: &'static [&'static str],
    /// The same for [`BATCHED`].
    pub batched_flags: &'static [&'static str],
    /// That it shall not run before it is measured.
    pub no_warmup: &'static [&'static str],
    /// A row of one sequence at a depth; `None` if there is no such thing.
    pub at_depth: fn(&Case) -> Option<Row>,
}

/// A row as [`BENCH`] is asked for it and as it then says what it measured.
pub struct Row {
    /// The arguments.
    pub args: Vec<String>,
    /// `n_prompt`, `n_gen` and `n_depth` of the result.
    pub result: [usize; 3],
}

impl Row {
    fn new(case: &Case, dialect: &Dialect) -> Result<Self, String> {
        if case.depth > 0 {
            return (dialect.at_depth)(case).ok_or_else(|| format!("{BENCH}: has no row like {case}"));
        }
        let (prompt, generate) = lengths(case);
        Ok(Self { args: arguments(prompt, generate), result: [prompt, generate, 0] })
    }
}

/// Tokens to read, tokens to generate.
pub fn lengths(case: &Case) -> (usize, usize) {
    match case.task {
        Task::Prefill => (case.tokens, 0),
        Task::Decode => (0, case.tokens),
    }
}

/// The arguments for so many tokens.
pub fn arguments(prompt: usize, generate: usize) -> Vec<String> {
    vec!["-p".into(), prompt.to_string(), "-n".into(), generate.to_string()]
}

/// Measures a row once.
pub fn take(program: &Path, case: &Case, setup: &Setup, dialect: &Dialect) -> Result<Taken, String> {
    match case.batch {
        1 => single(program, case, setup, dialect),
        _ => batched(program, case, setup, dialect),
    }
}

/// What both programs are told.
fn command(program: &Path, setup: &Setup, flags: &[&str]) -> Command {
    let mut command = Command::new(program);
    let (threads, chunk) = (setup.threads.to_string(), setup.chunk.to_string());
    command.arg("-m").arg(&setup.model).args(["-t", &threads, "-ub", &chunk]);
    let kv = setup.kv.to_string();
    command.args(["-ctk", &kv, "-ctv", &kv]);
    command.args(flags).args(&setup.flags);
    command
}

fn single(program: &Path, case: &Case, setup: &Setup, dialect: &Dialect) -> Result<Taken, String> {
    let row = Row::new(case, dialect)?;
    let mut command = command(program, setup, dialect.flags);
    command.args(["-o", "json", "-r", "1"]).args(&row.args);
    if !setup.warmup {
        command.args(dialect.no_warmup);
    }
    single_result(&output(command, setup.limit)?.stdout, case.tokens, row.result, &setup.model)
}

/// The figure in a JSON list with one entry, which must be of the row and the file that were asked for.
fn single_result(text: &str, tokens: usize, expected: [usize; 3], model: &Path) -> Result<Taken, String> {
    let entries: Vec<Value> =
        serde_json::from_str(text).map_err(|e| format!("{BENCH}: expected JSON on stdout: {e}"))?;
    let [entry] = &entries[..] else {
        return Err(format!("{BENCH}: expected one result, found {}", entries.len()));
    };
    let found = ["n_prompt", "n_gen", "n_depth"].map(|name| entry[name].as_u64().unwrap_or(0) as usize);
    if found != expected {
        return Err(format!("{BENCH}: expected {expected:?} (prompt, generated, depth), found {found:?}"));
    }
    let file = entry["model_filename"].as_str().unwrap_or_default();
    if Path::new(file) != model {
        return Err(format!("{BENCH}: ran `{file}`, not {}; no ratio from different files", model.display()));
    }
    // Not `avg_ts`, which may count the tokens of the depth.
    let nanoseconds = entry["avg_ns"].as_f64().filter(|ns| *ns > 0.0);
    let nanoseconds = nanoseconds.ok_or_else(|| format!("{BENCH}: expected `avg_ns`, found none"))?;
    let version = entry["build_commit"].as_str().map(|commit| match entry["build_number"].as_u64() {
        Some(number) => format!("{commit} (build {number})"),
        None => commit.to_owned(),
    });
    Ok(Taken { tokens_per_s: tokens as f64 * 1e9 / nanoseconds, version })
}

/// llama.cpp prints from a thread of its own and may end before its last line is out, so a take without a row is made
/// again, so often in all.
const TRIES: usize = 4;

fn batched(program: &Path, case: &Case, setup: &Setup, dialect: &Dialect) -> Result<Taken, String> {
    let mut result = batched_once(program, case, setup, dialect)?;
    for _ in 1..TRIES {
        if result.is_err() {
            result = batched_once(program, case, setup, dialect)?;
        }
    }
    result
}

/// Runs the program; the inner result is that of looking for the row in what it printed.
fn batched_once(
    program: &Path,
    case: &Case,
    setup: &Setup,
    dialect: &Dialect,
) -> Result<Result<Taken, String>, String> {
    let mut command = command(&program.with_file_name(BATCHED), setup, dialect.batched_flags);
    // Every sequence begins with at least a token there, as ours does.
    let prompt = case.depth.max(1);
    let context = (prompt + case.tokens) * case.batch;
    command.args(["-npp", &prompt.to_string(), "-ntg", &case.tokens.to_string()]);
    command.args(["-npl", &case.batch.to_string(), "-c", &context.to_string()]);
    // Where the table goes differs within the family.
    let printed = output(command, setup.limit)?;
    Ok(batched_result(&(printed.stdout + "\n" + &printed.stderr), [prompt, case.tokens, case.batch]))
}

/// The generation speed in the table's row of so long prompts, so many tokens, so many sequences.
fn batched_result(text: &str, expected: [usize; 3]) -> Result<Taken, String> {
    let columns: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let place = |name: &str| columns.iter().find_map(|cells| cells.iter().position(|cell| *cell == name));
    let places = ["PP", "TG", "B", "S_TG t/s"].map(place);
    let [Some(pp), Some(tg), Some(b), Some(speed)] = places else {
        return Err(format!("{BATCHED}: expected a table with PP, TG, B and S_TG t/s on stdout"));
    };
    let cell = |cells: &[&str], place: usize| cells.get(place).and_then(|cell| cell.parse::<f64>().ok());
    let is_row =
        |cells: &&Vec<&str>| [pp, tg, b].map(|place| cell(cells, place)) == expected.map(|n| Some(n as f64));
    let rate = columns.iter().find(is_row).and_then(|cells| cell(cells, speed)).filter(|rate| *rate > 0.0);
    let tokens_per_s = rate.ok_or_else(|| format!("{BATCHED}: expected a row of {expected:?}"))?;
    Ok(Taken { tokens_per_s, version: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: &str = r#"[{"build_commit": "abc", "build_number": 7, "model_filename": "m.gguf",
        "n_prompt": 0, "n_gen": 16, "n_depth": 64, "avg_ns": 400000000, "avg_ts": 41.5}]"#;

    const BATCH: &str = "some words\n\
        |    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n\
        |-------|--------|------|--------|----------|----------|----------|----------|----------|----------|\n\
        |    64 |     16 |    4 |    320 |    0.100 |   900.00 |    1.000 |    59.25 |    1.100 |   290.91 |\n";

    #[test]
    fn a_result_is_taken_only_from_the_row_and_the_file_asked_for() {
        let result = |expected, file: &str| single_result(SINGLE, 16, expected, Path::new(file));
        let taken = result([0, 16, 64], "m.gguf").unwrap();
        assert_eq!(taken, Taken { tokens_per_s: 40.0, version: Some("abc (build 7)".into()) });
        let other = result([0, 16, 64], "n.gguf").unwrap_err();
        assert!(other.contains("no ratio from different files"), "{other}");
        assert!(result([0, 16, 128], "m.gguf").is_err());
        assert!(single_result("warming up", 16, [0, 16, 64], Path::new("m.gguf")).is_err());
    }

    #[test]
    fn the_batched_figure_is_that_of_its_row() {
        assert_eq!(batched_result(BATCH, [64, 16, 4]).unwrap().tokens_per_s, 59.25);
        assert!(batched_result(BATCH, [64, 16, 8]).is_err());
        assert!(batched_result("no table", [64, 16, 4]).is_err());
    }
}
