//! Splitting text into words.
//!
//! Patterns run in the `regex` crate, where one match is linear in the text; so are all matches together for the
//! patterns of [`crate::PRETOKENIZERS`], none of which looks far ahead for a short match (a file can bring one that
//! does, such as `a*b|a`, and then long texts of `a` take quadratic time). The crate has no look-ahead, and real
//! patterns need only one: `\s+(?!\S)`, "white space, but leave its last character to the word behind it".
//! [`Pattern`] takes that alternative out and shortens the match instead.

use std::ops::Range;

use regex::Regex;

use crate::error::Problem;

/// One step of a pre-tokenizer; each step splits further what the steps before left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Matches of this pattern and the stretches between them become words of their own. It may hold the alternative
    /// `\s+(?!\S)` at its end.
    Isolate(&'static str),
    /// Digits in groups of three, counted from the right.
    Thousands {
        /// Only where the digits end at a word boundary.
        bounded: bool,
    },
}

/// What becomes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) enum Behavior {
    Isolated,
    Removed,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// A compiled step.
#[derive(Debug)]
pub(crate) enum Step {
    Pattern {
        pattern: Pattern,
        behavior: Behavior,
        invert: bool,
    },
    Thousands {
        digits: Regex,
        bounded: bool,
    },
    /// Before each `▁`, unless it follows one of these characters (sorted).
    Marks {
        glue: Vec<char>,
    },
}

impl Step {
    /// Compiles a rule.
    pub fn new(rule: Rule) -> Result<Self, Problem> {
        match rule {
            Rule::Isolate(pattern) => Self::pattern(pattern, Behavior::Isolated, false),
            Rule::Thousands { bounded } => Ok(Self::Thousands { digits: compile(r"\d+", r"\d+")?, bounded }),
        }
    }

    /// Compiles a pattern with what is to become of its matches; with `invert`, of all else.
    pub fn pattern(pattern: &str, behavior: Behavior, invert: bool) -> Result<Self, Problem> {
        Ok(Self::Pattern { pattern: Pattern::new(pattern)?, behavior, invert })
    }

    fn split(&self, text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
        let word = &text[range.clone()];
        let shift = |r: Range<usize>| r.start + range.start..r.end + range.start;
        match self {
            Self::Marks { glue } => {
                let follows_glue =
                    |at: usize| word[..at].chars().next_back().is_none_or(|c| glue.binary_search(&c).is_ok());
                let mut start = range.start;
                for (at, _) in word.match_indices('▁').filter(|(at, _)| !follows_glue(*at)) {
                    out.push(start..range.start + at);
                    start = range.start + at;
                }
                out.push(start..range.end);
            }
            Self::Pattern { pattern, behavior, invert } => {
                let stretches = stretches(word.len(), pattern.matches(word));
                let stretches = stretches.map(|(r, matched)| (shift(r), matched != *invert));
                arrange(stretches, *behavior, out);
            }
            Self::Thousands { digits, bounded } => {
                let groups = digits
                    .find_iter(word)
                    .filter(|run| !bounded || !continues_word(&word[run.end()..]))
                    .flat_map(|run| thousands(word, run.range()));
                out.extend(stretches(word.len(), groups).map(|(r, _)| shift(r)));
            }
        }
    }
}

/// The words of `text` after all `steps`, in order.
pub(crate) fn split(steps: &[Step], text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    if !text.is_empty() {
        words.push(0..text.len());
    }
    for step in steps {
        let mut finer = Vec::with_capacity(words.len());
        for word in words {
            step.split(text, word, &mut finer);
        }
        words = finer;
    }
    words
}

/// Fills the gaps between `matches`: every stretch in order, with whether it is a match.
fn stretches(
    len: usize,
    matches: impl Iterator<Item = Range<usize>>,
) -> impl Iterator<Item = (Range<usize>, bool)> {
    let mut done = 0;
    let end = std::iter::once((len..len, false));
    let marked = matches.map(|m| (m, true)).chain(end).flat_map(move |(m, matched)| {
        let gap = done..m.start;
        done = m.end;
        [(gap, false), (m, matched)]
    });
    marked.filter(|(r, _)| !r.is_empty())
}

fn arrange(
    stretches: impl Iterator<Item = (Range<usize>, bool)>,
    behavior: Behavior,
    out: &mut Vec<Range<usize>>,
) {
    let first = out.len();
    let mut before = None;
    for (range, matched) in stretches {
        let joins = match behavior {
            Behavior::Isolated => false,
            Behavior::Removed if matched => continue,
            Behavior::Removed => false,
            Behavior::MergedWithPrevious => matched && before == Some(false),
            Behavior::MergedWithNext => !matched && before == Some(true),
            Behavior::Contiguous => before == Some(matched),
        };
        before = Some(matched);
        match out[first..].last_mut() {
            Some(last) if joins => last.end = range.end,
            _ => out.push(range),
        }
    }
}

/// The digits of `run` in groups of three counted from the right.
fn thousands(text: &str, run: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let starts: Vec<usize> = text[run.clone()].char_indices().map(|(at, _)| run.start + at).collect();
    let short = starts.len() % 3;
    let firsts = (short != 0).then_some(0).into_iter().chain((short..starts.len()).step_by(3));
    let mut bounds: Vec<usize> = firsts.map(|digit| starts[digit]).collect();
    bounds.push(run.end);
    (1..bounds.len()).map(move |i| bounds[i - 1]..bounds[i])
}

fn continues_word(after: &str) -> bool {
    after.chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// A pattern whose alternative `\s+(?!\S)`, if it has one, is done by hand.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    leaves_last_space: bool,
    /// White space that ends with a line break was matched by an alternative of its own.
    lines_apart: bool,
}

/// The endings that mean "white space, its last character apart"; what they match together, `\s+` matches alone.
const LAST_SPACE_APART: [&str; 3] = [r"\s+(?!\S)|\s+", r"\s+(?!\S)|\s", r"\s+(?!\S)"];

/// Patterns with possessive quantifiers that mean the same without, as what follows never matches what they hold.
const POSSESSIVE: [(&str, &str); 5] = [
    (r"[^\r\n\p{L}\p{N}]?+", r"[^\r\n\p{L}\p{N}]?"),
    (r"\p{L}++", r"\p{L}+"),
    (r"\p{N}{1,3}+", r"\p{N}{1,3}"),
    (r"[^\s\p{L}\p{N}]++", r"[^\s\p{L}\p{N}]+"),
    (r"[\r\n]*+", r"[\r\n]*"),
];

impl Pattern {
    /// Compiles `source`.
    ///
    /// # Errors
    /// [`Problem::Pattern`] if it is malformed or needs look-around of another kind.
    pub fn new(source: &str) -> Result<Self, Problem> {
        let mut plain = source.to_owned();
        for (possessive, greedy) in POSSESSIVE {
            plain = plain.replace(possessive, greedy);
        }
        let ending = LAST_SPACE_APART.iter().find(|ending| plain.ends_with(*ending));
        if let Some(ending) = ending {
            plain.truncate(plain.len() - ending.len());
            plain.push_str(r"\s+");
        }
        Ok(Self {
            regex: compile(&plain, source)?,
            leaves_last_space: ending.is_some(),
            lines_apart: plain.contains(r"\s*[\r\n]"),
        })
    }

    /// Compiles `source` as it is.
    ///
    /// # Errors
    /// [`Problem::Pattern`] if it is malformed or needs look-around.
    pub fn plain(source: &str) -> Result<Regex, Problem> {
        compile(source, source)
    }

    /// The matches in `text`, from left to right; empty ones are left out.
    fn matches<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let mut found = self.regex.find_at(text, at)?.range();
                if self.leaves_last_space {
                    found.end = self.before_last_space(text, &found);
                }
                if !found.is_empty() {
                    at = found.end;
                    return Some(found);
                }
                at = found.end + text[found.end..].chars().next()?.len_utf8();
            }
        })
    }

    /// Where a match ends once white space before a word has given up its last character.
    fn before_last_space(&self, text: &str, found: &Range<usize>) -> usize {
        let space = &text[found.clone()];
        let last = space.chars().next_back().map_or(0, char::len_utf8);
        let keeps_all = found.end == text.len()
            || last == space.len()
            || (self.lines_apart && space.ends_with(['\r', '\n']))
            || !space.chars().rev().all(char::is_whitespace);
        if keeps_all { found.end } else { found.end - last }
    }
}

/// Compiles what the regex engine runs; errors show the pattern as the file has it.
fn compile(pattern: &str, source: &str) -> Result<Regex, Problem> {
    Regex::new(pattern).map_err(|e| Problem::Pattern { pattern: source.into(), reason: reason(&e) })
}

fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(steps: &[Step], text: &str) -> Vec<String> {
        split(steps, text).into_iter().map(|r| text[r].to_owned()).collect()
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        for ending in LAST_SPACE_APART {
            let step = [Step::pattern(&format!(r" ?\w+|{ending}"), Behavior::Isolated, false).unwrap()];
            assert_eq!(words(&step, "a   b\t\tc  "), ["a", "  ", " b", "\t", "\t", "c", "  "], "{ending}");
            assert_eq!(words(&step, "\tb \u{3000}\u{3000}x"), ["\t", "b", " \u{3000}", "\u{3000}", "x"]);
        }
    }

    #[test]
    fn line_breaks_stay_together_where_the_pattern_says_so() {
        let step = [Step::pattern(r" ?\w+|\s*[\r\n]+|\s+(?!\S)|\s+", Behavior::Isolated, false).unwrap()];
        assert_eq!(words(&step, "a \n\n  b\n"), ["a", " \n\n", " ", " b", "\n"]);
        let step = [Step::pattern(r" ?\w+|\s+(?!\S)", Behavior::Isolated, false).unwrap()];
        assert_eq!(words(&step, "a \n\nb"), ["a", " \n", "\n", "b"]);
    }

    #[test]
    fn each_behavior_places_the_match() {
        for (behavior, expected) in [
            (Behavior::Isolated, &["a", "-", "-", "b", "-"][..]),
            (Behavior::Removed, &["a", "b"]),
            (Behavior::MergedWithPrevious, &["a-", "-", "b-"]),
            (Behavior::MergedWithNext, &["a", "-", "-b", "-"]),
            (Behavior::Contiguous, &["a", "--", "b", "-"]),
        ] {
            let step = [Step::pattern("-", behavior, false).unwrap()];
            assert_eq!(words(&step, "a--b-"), expected, "{behavior:?}");
        }
    }

    #[test]
    fn thousands_count_from_the_right() {
        let free = [Step::new(Rule::Thousands { bounded: false }).unwrap()];
        assert_eq!(words(&free, "a1234567 12 345x"), ["a", "1", "234", "567", " ", "12", " ", "345", "x"]);
        let bounded = [Step::new(Rule::Thousands { bounded: true }).unwrap()];
        assert_eq!(words(&bounded, "1234 1234x"), ["1", "234", " 1234x"]);
    }

    #[test]
    fn other_look_around_is_refused_with_its_pattern() {
        let error = Pattern::new(r"a(?=b)").unwrap_err().to_string();
        assert!(error.contains("a(?=b)") && error.contains("look-around"), "{error}");
    }
}
