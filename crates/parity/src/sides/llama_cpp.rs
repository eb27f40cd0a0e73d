//! llama.cpp, through its `llama-perplexity`: every installation has it, and it can save the log-probabilities of a
//! text. It reads the texts by itself, so its tokens are the ones that are compared.

use super::kl_base::KlBase;
use crate::{
    oracle,
    scratch::Scratch,
    side::{Form, Identity, Opening, Precision, Prompt, Side, SideEntry},
};
use nibble_api::{Error, Kind};
use nibble_measure::{Hashing, hash_files};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The program, in `PATH`.
const PROGRAM: &str = "llama-perplexity";

/// Tokens in a chunk; the second half of each is compared.
const CHUNK: usize = 128;

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "llama.cpp",
    means: |spec| spec == "llama.cpp",
    open: |_, with| Ok(Box::new(LlamaCpp::open(with)?)),
};

struct LlamaCpp {
    saved: KlBase,
    /// What it saves when run again, opened when it is asked for.
    again: Run,
    identity: Identity,
    /// The tokens that we make of the texts.
    ours: Vec<u32>,
    _scratch: Scratch,
}

/// A run of the program.
struct Run {
    program: PathBuf,
    model: PathBuf,
    text: PathBuf,
    chunk: usize,
    threads: usize,
}

impl LlamaCpp {
    fn open(with: &Opening<'_>) -> Result<Self, Error> {
        let scratch = Scratch::new()?;
        let texts: Vec<_> = with.texts.iter().map(|t| t.text.as_str()).collect();
        let text = texts.join("\n\n");
        let run = Run {
            program: with.program.map_or_else(|| PROGRAM.into(), Path::to_owned),
            model: with.path()?,
            text: scratch.write("texts.txt", &text)?,
            chunk: CHUNK.min(with.model.config.context.max(2)),
            threads: with
                .options
                .threads
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into)),
        };
        let version = run.version()?;
        let saved = scratch.file("log-probabilities");
        run.save(&saved, None)?;
        let program = run.program.display();
        let hashes = hash_files([run.model.as_path()], &mut Hashing::default())?;
        let sha256: String = hashes.into_iter().map(|hash| hash.sha256).collect();
        let identity = Identity {
            side: "llama.cpp".into(),
            text: format!("program  {program}, {version}, {} threads\nmodel    sha256 {sha256}", run.threads),
            json: serde_json::json!({ "program": run.program, "version": version, "threads": run.threads, "sha256": sha256 }),
        };
        let saved = KlBase::open(&saved, identity.clone(), with)?;
        Ok(Self { saved, again: run, identity, ours: with.model.encode(&text)?, _scratch: scratch })
    }
}

impl Side for LlamaCpp {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn precision(&self) -> Precision {
        Precision::Rounded
    }

    fn form(&self) -> Form {
        self.saved.form()
    }

    fn prompts(&self) -> Option<&[Prompt]> {
        self.saved.prompts()
    }

    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        self.saved.rows(prompt, row)
    }

    /// Runs the program a second time, on the first chunk alone.
    fn check(&mut self, _prompt: &Prompt) -> Result<String, Error> {
        let again = self._scratch.file("again");
        self.again.save(&again, Some(1))?;
        let again = crate::base_file::BaseFile::open(&again)?;
        let first = self.saved.prompts().and_then(|p| p.first()).cloned().unwrap_or_default();
        let mut second_time = false;
        let what =
            oracle::says_the_same_twice(self.identity.side.clone(), self.form(), &first, &mut |row| {
                if !std::mem::replace(&mut second_time, true) {
                    return self.saved.rows(&first, row);
                }
                let mut numbers = vec![0.0; again.head.vocab];
                (first.first..first.end).enumerate().try_for_each(|(i, position)| {
                    again.read(0, i, &mut numbers)?;
                    row(position, &numbers);
                    Ok(())
                })
            })?;
        let theirs = self.saved.tokens();
        let alike = self.ours.get(..theirs.len()) == Some(theirs);
        let alike = if alike {
            "reads the texts as the same tokens"
        } else {
            "reads the texts as other tokens, which both sides get"
        };
        Ok(format!("{what}, {alike}"))
    }
}

impl Run {
    fn version(&self) -> Result<String, Error> {
        let output =
            self.failed(Command::new(&self.program).arg("--version").stdin(Stdio::null()).output())?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(text
            .lines()
            .find(|line| line.contains("version"))
            .unwrap_or("version not verified")
            .trim()
            .to_owned())
    }

    /// Saves log-probabilities of the text, or of its first chunks.
    fn save(&self, to: &Path, chunks: Option<usize>) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(&self.model).arg("-f").arg(&self.text).arg("--save-all-logits").arg(to);
        let [chunk, threads] = [self.chunk, self.threads].map(|n| n.to_string());
        command.args(["-c", &chunk, "-b", &chunk, "-t", &threads, "-ngl", "0"]);
        if let Some(chunks) = chunks {
            command.args(["--chunks", &chunks.to_string()]);
        }
        let output = self.failed(command.stdin(Stdio::null()).output())?;
        if output.status.success() && to.is_file() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        let what = format!(
            "{}: expected log-probabilities, found {}; it said: {last}",
            self.program.display(),
            output.status
        );
        Err(Error::new(Kind::Run, what))
    }

    fn failed<T>(&self, result: std::io::Result<T>) -> Result<T, Error> {
        result.map_err(|e| {
            let what = format!(
                "{}: cannot be run: {e}; install llama.cpp or say where it is with --program",
                self.program.display()
            );
            Error::new(Kind::Usage, what)
        })
    }
}
