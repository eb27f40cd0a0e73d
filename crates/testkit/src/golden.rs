//! Golden logits: `golden.json` files as Hugging Face transformers made them, and how to compare with them.

use crate::{runner::Runner, workspace_root};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The largest difference to float32 transformers that still counts as the same computation.
pub const TOLERANCE: f32 = 2e-3;

/// What the reference computed for one prompt.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// `one`, `eleven`, ...
    pub name: String,
    /// The tokens.
    pub ids: Vec<u32>,
    /// The ten largest logits of every position, as (token, logit).
    pub top: Vec<Vec<(u32, f32)>>,
    /// `ln(sum of exp(logit))` of every position.
    pub logsumexp: Vec<f32>,
    /// The tokens that follow when the largest logit always wins.
    pub greedy: Vec<u32>,
    /// How far each of them led the second.
    pub gaps: Vec<f32>,
}

/// Where logits differ most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// How much.
    pub max: f32,
    /// At which position.
    pub position: usize,
}

/// Folders in `dir` with a `golden.json`, sorted.
///
/// # Panics
/// If `dir` cannot be read.
pub fn folders(dir: &Path) -> Vec<PathBuf> {
    let mut folders = entries(dir);
    folders.retain(|path| path.join("golden.json").is_file());
    folders
}

/// The models of `golden/models`, each a folder with a `golden.json`.
///
/// # Panics
/// If there are only a few: they are ours.
pub fn models() -> Vec<PathBuf> {
    let folders = folders(&workspace_root().join("golden/models"));
    assert!(folders.len() > 10, "{folders:?}");
    folders
}

/// The directories of `golden/containers`: one model, packed in every way; golden logits are those of the unpacked numbers.
///
/// # Panics
/// If there are only a few: they are ours.
pub fn containers() -> Vec<PathBuf> {
    let folders = folders(&workspace_root().join("golden/containers"));
    assert!(folders.len() > 25, "{folders:?}");
    folders
}

/// The files of `golden/gguf` and their golden files: that of the model each was made from, its own if it is rounded.
///
/// # Panics
/// If there are only a few: they are ours.
pub fn gguf_files() -> Vec<(PathBuf, PathBuf)> {
    let root = workspace_root().join("golden");
    let mut files = entries(&root.join("gguf"));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    assert!(files.len() > 8, "{files:?}");
    let golden = |path: &PathBuf| {
        let own = path.with_extension("golden.json");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8");
        let (model, _encoding) = stem.rsplit_once('-').expect("NAME-TYPE.gguf");
        if own.is_file() { own } else { root.join("models").join(model).join("golden.json") }
    };
    files.into_iter().map(|path| (path.clone(), golden(&path))).collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Reads a golden file.
///
/// # Panics
/// If it is not there or has another form: it is ours.
pub fn read(path: &Path) -> Vec<Prompt> {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: Value = serde_json::from_slice(&text).expect("golden files are JSON");
    list(&file["prompts"]).iter().map(Prompt::from_json).collect()
}

impl Prompt {
    fn from_json(p: &Value) -> Self {
        let pair = |pair: &Value| (id(&pair[0]), number(&pair[1]));
        // With a cache, keys keep the rotation of the pass that wrote them, as they do here.
        let greedy = p.get("greedy_cached").unwrap_or(&p["greedy"]);
        Self {
            name: p["name"].as_str().expect("a name").into(),
            ids: list(&p["ids"]).iter().map(id).collect(),
            top: list(&p["top10"]).iter().map(|row| list(row).iter().map(pair).collect()).collect(),
            logsumexp: list(&p["logsumexp"]).iter().map(number).collect(),
            greedy: list(greedy).iter().map(id).collect(),
            gaps: list(&p["greedy_gaps"]).iter().map(number).collect(),
        }
    }

    /// The first `len` tokens and what belongs to them, without the tokens that follow the whole.
    pub fn cut(&self, len: usize) -> Self {
        let mut cut = self.clone();
        if len < self.ids.len() {
            cut.ids.truncate(len);
            cut.top.truncate(len);
            cut.logsumexp.truncate(len);
            cut.greedy.clear();
            cut.gaps.clear();
        }
        cut
    }

    /// The largest difference of `logits`, one row for each position, to the golden ones.
    ///
    /// # Panics
    /// If there are not as many rows as positions, or a number is not finite.
    pub fn difference(&self, logits: &[Vec<f32>]) -> Difference {
        assert_eq!(logits.len(), self.ids.len(), "rows of {}", self.name);
        let mut worst = Difference::default();
        for (position, row) in logits.iter().enumerate() {
            assert!(row.iter().all(|l| l.is_finite()), "{} at {position} is not finite", self.name);
            let top = self.top[position].iter().map(|&(token, logit)| (row[token as usize] - logit).abs());
            let sum = (logsumexp(row) - self.logsumexp[position]).abs();
            let max = top.fold(sum, f32::max);
            if max > worst.max {
                worst = Difference { max, position };
            }
        }
        worst
    }

    /// Compares tokens with the golden ones up to the first that may differ, where the lead is at most `2 * bound`.
    ///
    /// # Errors
    /// A sentence, if one differs that may not.
    pub fn check_greedy(&self, tokens: &[u32], bound: f32) -> Result<(), String> {
        for (i, (&found, &expected)) in tokens.iter().zip(&self.greedy).enumerate() {
            if found != expected {
                let gap = self.gaps[i];
                let message =
                    format!("{}: greedy token {i} is {found}, not {expected} (lead {gap})", self.name);
                return if gap <= 2.0 * bound { Ok(()) } else { Err(message) };
            }
        }
        Ok(())
    }

    /// Runs prompt and greedy continuation; returns the largest difference.
    ///
    /// # Panics
    /// If logits differ by more than `bound`, or a token differs.
    pub fn check(&self, runner: &mut Runner, bound: f32) -> Difference {
        runner.start(self.ids.len());
        let difference = self.difference(&runner.feed(&self.ids, self.ids.len()));
        assert!(difference.max <= bound, "{}: {difference:?} is more than {bound}", self.name);
        let tokens = runner.greedy(&self.ids, self.greedy.len());
        self.check_greedy(&tokens, bound).unwrap_or_else(|message| panic!("{message}"));
        difference
    }
}

/// `ln(sum of exp(x))`, without overflow.
pub fn logsumexp(row: &[f32]) -> f32 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
    (f64::from(max) + sum.ln()) as f32
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn id(value: &Value) -> u32 {
    value.as_u64().and_then(|id| u32::try_from(id).ok()).expect("a token id")
}

fn number(value: &Value) -> f32 {
    value.as_f64().expect("a number") as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt() -> Prompt {
        let logsumexp = logsumexp(&[0.0, 2.0, 1.0]);
        Prompt {
            name: "p".into(),
            ids: vec![7],
            top: vec![vec![(1, 2.0), (2, 1.0)]],
            logsumexp: vec![logsumexp],
            greedy: vec![1, 2],
            gaps: vec![1.0, 0.001],
        }
    }

    #[test]
    fn a_wrong_logit_and_a_wrong_sum_are_both_seen() {
        assert_eq!(prompt().difference(&[vec![0.0, 2.0, 1.0]]).max, 0.0);
        assert!(prompt().difference(&[vec![0.0, 2.0, 1.5]]).max >= 0.5);
        assert!(prompt().difference(&[vec![3.0, 2.0, 1.0]]).max > 0.5, "a logit outside the list");
    }

    #[test]
    fn greedy_tokens_may_differ_only_where_the_lead_is_small() {
        assert!(prompt().check_greedy(&[1, 2], 0.0).is_ok());
        assert!(prompt().check_greedy(&[1, 0], 0.001).is_ok());
        assert!(prompt().check_greedy(&[1, 0], 0.0001).is_err());
        assert!(prompt().check_greedy(&[0, 2], 0.001).is_err());
    }
}
