//! A side that is a Python script of ours over somebody's library. Tokens go in as lines of JSON, rows of float32 come
//! back over a pipe; `scripts/transformers.py` says how.

use crate::{
    scratch::Scratch,
    side::{Identity, Opening, Precision, Prompt, Side, vocabulary},
};
use nibble_api::{Error, Kind};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

/// The interpreter, in `PATH`.
const PYTHON: &str = "python3";

/// The longest line that a script writes.
const MAX_LINE: u64 = 1 << 16;

pub(crate) struct Python {
    child: Child,
    out: BufReader<ChildStdout>,
    identity: Identity,
    precision: Precision,
    vocab: usize,
    said: PathBuf,
    _scratch: Scratch,
}

/// A line that a script writes.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    versions: BTreeMap<String, String>,
    shape: Option<[usize; 2]>,
}

impl Python {
    /// Starts `script` with the model's path as its argument, and waits until the model is loaded.
    pub fn start(side: &str, script: &str, precision: Precision, with: &Opening<'_>) -> Result<Self, Error> {
        let scratch = Scratch::new()?;
        let program = with.program.unwrap_or(Path::new(PYTHON));
        let said = scratch.file("said");
        let failed = |e: std::io::Error| {
            let what = format!(
                "{}: cannot be run: {e}; say with --program which Python has {side}",
                program.display()
            );
            Error::new(Kind::Usage, what)
        };
        let model = with.path()?;
        let mut child = Command::new(program)
            .arg(scratch.write("side.py", script)?)
            .arg(&model)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&said).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let out = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let vocab = with.model.config.vocab;
        let identity = Identity { side: side.into(), ..Identity::default() };
        let mut python = Self { child, out, identity, precision, vocab, said, _scratch: scratch };
        let versions = python.line()?.versions;
        let text: Vec<_> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        python.identity.text =
            format!("program  {}, {}\nmodel    {}", program.display(), text.join(", "), model.display());
        python.identity.json =
            serde_json::json!({ "program": program, "versions": versions, "model": model });
        Ok(python)
    }

    fn line(&mut self) -> Result<Line, Error> {
        let mut line = String::new();
        let read = self.out.by_ref().take(MAX_LINE).read_line(&mut line);
        read.ok().and_then(|_| serde_json::from_str(&line).ok()).ok_or_else(|| self.failed())
    }

    /// What went wrong, in the script's own words.
    fn failed(&self) -> Error {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        let side = &self.identity.side;
        Error::new(Kind::Run, format!("{side}: its Python gave no logits; it said: {last}"))
    }
}

impl Side for Python {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        let tokens = &prompt.tokens[..prompt.end];
        let mut request = serde_json::to_vec(tokens).expect("numbers are JSON");
        request.push(b'\n');
        let mut stdin = self.child.stdin.as_ref().expect("a pipe was asked for");
        stdin.write_all(&request).and_then(|()| stdin.flush()).map_err(|_| self.failed())?;
        let [rows, width] = self.line()?.shape.ok_or_else(|| self.failed())?;
        vocabulary(self.vocab, width, &self.identity.side)?;
        if rows != tokens.len() {
            let what = format!("{}: expected {} rows, found {rows}", self.identity.side, tokens.len());
            return Err(Error::new(Kind::Run, what));
        }
        let (mut bytes, mut numbers) = (vec![0; width * 4], vec![0.0; width]);
        for position in 0..rows {
            self.out.read_exact(&mut bytes).map_err(|_| self.failed())?;
            if position >= prompt.first {
                let (words, _) = bytes.as_chunks::<4>();
                numbers.iter_mut().zip(words).for_each(|(x, word)| *x = f32::from_le_bytes(*word));
                row(position, &numbers);
            }
        }
        Ok(())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
