//! A user's own rules: `pattern = encoding`, a line each.
//!
//! A pattern is a regular expression that is found anywhere in the GGUF name of a matrix; the first line that matches wins.
//! Empty lines and lines that begin with `#` are passed over. What llama.cpp's `--tensor-type-file` reads line by line, this
//! reads too.

use super::recipe::writable;
use crate::{Error, Kind};
use nibble_quant::{Codec, Registry};
use regex::Regex;
use std::{cell::Cell, path::Path};

struct Rule {
    line: usize,
    pattern: Regex,
    to: &'static dyn Codec,
    matched: Cell<bool>,
}

/// The rules of a file, or none.
#[derive(Default)]
pub(super) struct Rules {
    file: String,
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it cannot be read, or a line is no rule.
    pub fn open(path: &Path, codecs: &Registry) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::new(Kind::Usage, format!("{file}: cannot be read: {e}")))?;
        Self::parse(file, &text, codecs)
    }

    fn parse(file: String, text: &str, codecs: &Registry) -> Result<Self, Error> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let rules =
            lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(line, text)| {
                rule(line, text, codecs)
                    .map_err(|what| Error::new(Kind::Usage, format!("{file}: line {line}: {what}")))
            });
        let rules = rules.collect::<Result<_, _>>()?;
        Ok(Self { file, rules })
    }

    /// The encoding of a matrix, if a rule matches its name. All rules that match are taken note of.
    pub fn find(&self, name: &str) -> Option<&'static dyn Codec> {
        let matching: Vec<&Rule> = self.rules.iter().filter(|rule| rule.pattern.is_match(name)).collect();
        matching.iter().for_each(|rule| rule.matched.set(true));
        matching.first().map(|rule| rule.to)
    }

    /// Refuses rules that [`Rules::find`] never met a name for.
    ///
    /// # Errors
    /// [`Kind::Usage`], naming the first one.
    pub fn check_matched(&self) -> Result<(), Error> {
        match self.rules.iter().find(|rule| !rule.matched.get()) {
            None => Ok(()),
            Some(Rule { line, pattern, .. }) => {
                let what = format!("line {line}: pattern `{pattern}` matches no matrix of the model");
                Err(Error::new(Kind::Usage, format!("{}: {what}", self.file)))
            }
        }
    }
}

fn rule(line: usize, text: &str, codecs: &Registry) -> Result<Rule, String> {
    let refuse = || format!("expected `pattern = encoding`, found `{text}`");
    let (pattern, to) = text.rsplit_once('=').ok_or_else(refuse)?;
    let (pattern, to) = (pattern.trim(), to.trim());
    if pattern.is_empty() || to.is_empty() {
        return Err(refuse());
    }
    let pattern = Regex::new(pattern).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("pattern `{pattern}` is no regular expression: {why}")
    })?;
    let to = writable(to, codecs).map_err(|e| e.to_string())?;
    Ok(Rule { line, pattern, to, matched: Cell::new(false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Rules, String> {
        Rules::parse("rules".into(), text, &Registry::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_first_rule_wins_and_patterns_match_anywhere() {
        let rules =
            parse("# notes\n\nblk\\.[0-3]\\..*attn_v = Q8_0\nattn_v=q6_k\n  ^output = f16  \n").unwrap();
        let to = |name| rules.find(name).map(|codec| codec.spec().name);
        assert_eq!(to("blk.2.attn_v.weight"), Some("q8_0"));
        assert_eq!(to("blk.12.attn_v.weight"), Some("q6_k"));
        assert_eq!(to("blk.0.attn_output.weight"), None);
        assert!(
            rules.check_matched().unwrap_err().to_string().contains("line 5: pattern `^output` matches no")
        );
        assert_eq!(to("output.weight"), Some("f16"));
        rules.check_matched().unwrap();
    }

    #[test]
    fn a_line_that_is_no_rule_is_refused_with_its_number() {
        for (text, says) in [
            ("attn_v q6_k", "rules: line 1: expected `pattern = encoding`, found `attn_v q6_k`"),
            ("a = q4_k\n= q6_k", "rules: line 2: expected `pattern = encoding`, found `= q6_k`"),
            ("a =", "rules: line 1: expected `pattern = encoding`"),
            ("a = q9_k", "rules: line 1: encoding: expected one of f32, f16"),
            ("a = iq1_s", "found `iq1_s`, which can only be read"),
            ("(a = q4_k", "rules: line 1: pattern `(a` is no regular expression: unclosed group"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
    }
}
