//! One pass through a graph: prefill, decode, batches, verification and embedding are all steps.

use crate::{Error, Limits};

/// Positions in a page of keys and values.
pub const PAGE_LEN: usize = 64;

/// What a step knows of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The pages that hold positions 0.. of the sequence, [`PAGE_LEN`] each, up to the last token of this step.
    /// Pages before the first token of this step are only read, so sequences may share them.
    pub pages: &'a [u32],
    /// Its slot of recurrent state; ignored by graphs without.
    pub state: u32,
    /// Tokens in its prompt; see [`nibble_graph::Frequencies::Dynamic`].
    pub prompt_len: u32,
}

/// Tokens to run, and where they belong.
///
/// The rows of one sequence stand together and in order of position, without gaps, and a sequence occurs once.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The token of each row.
    pub tokens: &'a [u32],
    /// The position of each row in its sequence.
    pub positions: &'a [u32],
    /// The sequence of each row: an index into `sequences`, not falling.
    pub sequence: &'a [u32],
    /// The sequences.
    pub sequences: &'a [Sequence<'a>],
    /// Rows whose outputs are wanted, rising.
    pub wanted: &'a [u32],
}

impl Step<'_> {
    /// Checks every rule of a step; backends call this first, so that nothing goes wrong half-way.
    ///
    /// # Errors
    /// [`Error::Step`] naming the broken rule.
    pub fn check(&self, limits: &Limits, vocab: usize, recurrent: bool) -> Result<(), Error> {
        let rows = self.tokens.len();
        at_most("tokens", rows, limits.rows)?;
        at_most("wanted rows", self.wanted.len(), limits.wanted)?;
        at_most("sequences", self.sequences.len(), limits.sequences)?;
        equal("positions", self.positions.len(), rows)?;
        equal("sequence numbers", self.sequence.len(), rows)?;
        if let Some(&token) = self.tokens.iter().find(|&&t| t as usize >= vocab) {
            return refuse("token id", format!("less than {vocab}"), token);
        }
        let rising = self.wanted.windows(2).all(|w| w[0] < w[1]);
        if !rising || self.wanted.last().is_some_and(|&r| r as usize >= rows) {
            return refuse(
                "wanted rows",
                format!("rising numbers below {rows}"),
                format!("{:?}", self.wanted),
            );
        }
        for row in 0..rows {
            let (s, p) = (self.sequence[row] as usize, self.positions[row] as usize);
            let Some(sequence) = self.sequences.get(s) else {
                return refuse("sequence of a row", format!("less than {}", self.sequences.len()), s);
            };
            let follows = row > 0 && self.sequence[row - 1] as usize == s;
            if follows && self.positions[row - 1] as usize + 1 != p {
                return refuse("position", (self.positions[row - 1] + 1).to_string(), p);
            }
            if !follows && row > 0 && self.sequence[row - 1] as usize > s {
                return refuse("sequence of a row", "numbers that do not fall".into(), s);
            }
            at_most("position", p + 1, limits.context)?;
            if p / PAGE_LEN >= sequence.pages.len() {
                return refuse("pages of a sequence", format!("{}", p / PAGE_LEN + 1), sequence.pages.len());
            }
        }
        for sequence in self.sequences {
            if let Some(&page) = sequence.pages.iter().find(|&&p| p as usize >= limits.pages) {
                return refuse("page", format!("less than {}", limits.pages), page);
            }
            if recurrent && sequence.state as usize >= limits.state_slots {
                return refuse("state slot", format!("less than {}", limits.state_slots), sequence.state);
            }
        }
        Ok(())
    }
}

/// Checks numbers that come from outside: whole rows of `width`, no more than a step can have.
///
/// # Errors
/// [`Error::Step`] if they are not.
pub fn check_given(numbers: &[f32], width: usize, limits: &Limits) -> Result<(), Error> {
    if !numbers.len().is_multiple_of(width) {
        return refuse("numbers from outside", format!("rows of {width}"), numbers.len());
    }
    at_most("rows from outside", numbers.len() / width, limits.rows)
}

fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), Error> {
    if found > most { refuse(what, format!("at most {most}"), found) } else { Ok(()) }
}

fn equal(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found != expected { refuse(what, expected.to_string(), found) } else { Ok(()) }
}

fn refuse(what: &'static str, expected: String, found: impl ToString) -> Result<(), Error> {
    Err(Error::Step { what, expected, found: found.to_string() })
}
