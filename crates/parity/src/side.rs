//! A side of a comparison: whatever can say the logits of given tokens.

use crate::{SIDES, oracle, trace::Trace, weights::Weights};
use nibble_api::{Error, Kind, Model, Options};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Tokens to run through both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// What it is called in reports.
    pub name: String,
    /// All of its tokens, a greedy continuation included.
    pub tokens: Vec<u32>,
    /// The first position that is compared.
    pub first: usize,
    /// The position after the last that is compared; at most `tokens.len()`.
    pub end: usize,
    /// How many of the tokens, at the end, were chosen greedily by one of the two sides.
    pub continuation: usize,
}

impl Prompt {
    /// A prompt of which every position is compared.
    pub fn new(name: impl Into<String>, tokens: Vec<u32>) -> Self {
        Self { name: name.into(), first: 0, end: tokens.len(), continuation: 0, tokens }
    }

    /// How many positions are compared.
    pub fn positions(&self) -> usize {
        self.end.saturating_sub(self.first)
    }
}

/// How exactly a side computes, which decides the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// Every number between ops is a 32-bit float or better.
    Exact,
    /// Inputs of products, keys or values are rounded to fewer bits.
    Rounded,
}

/// What the rows of a side hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Logits.
    Logits,
    /// Logarithms of probabilities, none of them lower than the row's largest minus this.
    LogProbs {
        /// The depth.
        depth: f32,
    },
}

/// Who computed: for reports, so that a result can be made again.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The side's name: `reference`, `cpu`, `llama.cpp`.
    pub side: String,
    /// File hash, build, device, versions: lines for people.
    pub text: String,
    /// The same for programs.
    pub json: serde_json::Value,
}

/// Whatever can say the logits of given tokens.
pub trait Side: Send {
    /// Who it is.
    fn identity(&self) -> &Identity;

    /// How exactly it computes.
    fn precision(&self) -> Precision;

    /// What its rows hold.
    fn form(&self) -> Form {
        Form::Logits
    }

    /// The prompts whose logits it has, if it is a file that holds no others.
    fn prompts(&self) -> Option<&[Prompt]> {
        None
    }

    /// Calls `row` with each compared position of `prompt` and its numbers, in order.
    ///
    /// # Errors
    /// If the side fails.
    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error>;

    /// Checks the side before anybody is judged by it. `prompt` is one that will be asked for.
    ///
    /// # Errors
    /// If it does not compute what it must; the default only asks for the same twice.
    fn check(&mut self, prompt: &Prompt) -> Result<String, Error> {
        oracle::says_the_same_twice(self.identity().side.clone(), self.form(), prompt, &mut |row| {
            self.rows(prompt, row)
        })
    }

    /// The next `count` tokens when the largest logit always wins, if it can go on from a prompt.
    ///
    /// # Errors
    /// If the side fails.
    fn greedy(&mut self, _tokens: &[u32], _count: usize) -> Result<Option<Vec<u32>>, Error> {
        Ok(None)
    }

    /// What every layer makes of these texts, if it can say. It must be the same texts for both sides.
    ///
    /// # Errors
    /// If the side fails.
    fn trace(&mut self, _texts: &[Vec<u32>]) -> Result<Option<Trace>, Error> {
        Ok(None)
    }

    /// The weights it computes with, if it can say.
    fn weights(&self) -> Option<Weights<'_>> {
        None
    }
}

/// What a side may need to be opened.
pub struct Opening<'a> {
    /// The model of the other side.
    pub model: &'a Arc<Model>,
    /// How the other side runs; a device takes threads and memory from it.
    pub options: &'a Options,
    /// The program or interpreter to use instead of the one in `PATH`.
    pub program: Option<&'a Path>,
    /// The tokens of a logits file that does not say them.
    pub tokens: Option<&'a [u32]>,
    /// The texts to be compared, for sides that read text themselves.
    pub texts: &'a [crate::prompts::Text],
}

impl Opening<'_> {
    /// The model's file or directory.
    ///
    /// # Errors
    /// [`Kind::Usage`] for the built-in model, which other programs cannot open.
    pub(crate) fn path(&self) -> Result<PathBuf, Error> {
        let path = &self.model.checkpoint.path;
        path.canonicalize().map_err(|_| {
            let what = format!("{}: no file that another program could open", path.display());
            Error::new(Kind::Usage, what)
        })
    }
}

/// Opens what `spec` means.
pub type Open = fn(spec: &str, with: &Opening<'_>) -> Result<Box<dyn Side>, Error>;

/// A kind of side by the name that users type.
pub struct SideEntry {
    /// What users type, in words.
    pub usage: &'static str,
    /// Whether `spec` means this kind.
    pub means: fn(spec: &str) -> bool,
    /// Opens it.
    pub open: Open,
}

/// Opens the side that `spec` means.
///
/// # Errors
/// [`Kind::Usage`] if it means none, and what opening it says.
pub fn open(spec: &str, with: &Opening<'_>) -> Result<Box<dyn Side>, Error> {
    let Some(entry) = SIDES.iter().find(|entry| (entry.means)(spec)) else {
        let known: Vec<_> = SIDES.iter().map(|entry| entry.usage).collect();
        let what =
            format!("--against: expected {}, found `{spec}`, which is none of them", known.join(", or "));
        return Err(Error::new(Kind::Usage, what));
    };
    (entry.open)(spec, with)
}

/// Two sides that do not know the same tokens cannot be compared.
pub(crate) fn vocabulary(expected: usize, found: usize, who: &str) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(Error::new(
        Kind::Usage,
        format!(
            "{who}: vocabulary: expected {expected} tokens as the model has, found {found}; is it the same model?"
        ),
    ))
}
