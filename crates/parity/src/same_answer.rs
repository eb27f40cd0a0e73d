//! The same answer, whatever it runs on and beside: one request through the whole cross of settings that must not
//! matter, compared byte by byte.

use nibble_api::{
    Engine, Error, Event, Kind, Limits, Memory, Model, Options, Plan, Request, RequestId, SamplerParams,
};
use nibble_backend::Step;
use std::{
    fmt,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

/// Settings of a cell of the cross.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How the engine runs.
    pub options: Options,
    /// Other requests in the same steps.
    pub neighbours: usize,
    /// Whether the same request has run before on the same engine.
    pub cached: bool,
}

/// A value that a dimension can take: what it is called and what it sets.
pub struct Choice {
    /// As it stands in the matrix.
    pub name: String,
    set: Box<dyn Fn(&mut Setting)>,
}

/// Something that must not matter.
pub struct Dimension {
    /// As it stands in the matrix.
    pub name: &'static str,
    /// What it can be, given what was asked for.
    pub choices: fn(&Options) -> Vec<Choice>,
}

/// Everything that must not matter. The last two make the columns of the matrix.
pub static DIMENSIONS: &[Dimension] = &[
    Dimension { name: "threads", choices: threads },
    Dimension { name: "chunk", choices: chunks },
    Dimension { name: "neighbours", choices: neighbours },
    Dimension { name: "cache", choices: cache },
];

fn choice(name: impl ToString, set: impl Fn(&mut Setting) + 'static) -> Choice {
    Choice { name: name.to_string(), set: Box::new(set) }
}

fn threads(_: &Options) -> Vec<Choice> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, all];
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().map(|n| choice(n, move |s| s.options.threads = Some(n))).collect()
}

fn chunks(_: &Options) -> Vec<Choice> {
    [1, 7, 64, 512].map(|n| choice(n, move |s| s.options.prefill_chunk = Some(n))).into()
}

fn neighbours(_: &Options) -> Vec<Choice> {
    [0, 3].map(|n| choice(n, move |s| s.neighbours = n)).into()
}

fn cache(_: &Options) -> Vec<Choice> {
    [("cold", false), ("hit", true)].map(|(name, cached)| choice(name, move |s| s.cached = cached)).into()
}

/// An answer: its tokens and a hash of the bits of the logits that each was chosen from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Greedy tokens.
    pub tokens: Vec<u32>,
    /// Of the logits before each.
    pub logits: Vec<[u8; 32]>,
}

/// A cell of the matrix.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The choice in each dimension.
    pub choices: Vec<usize>,
    /// The first token that is another one, if any is.
    pub token: Option<usize>,
    /// The first token before which a logit has other bits.
    pub logits: Option<usize>,
}

impl Cell {
    /// Whether the answer is the first cell's, bit for bit.
    pub fn same(&self) -> bool {
        self.token.is_none() && self.logits.is_none()
    }
}

/// The whole cross.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The names of the dimensions and of the choices in each.
    pub dimensions: Vec<(&'static str, Vec<String>)>,
    /// A cell for each combination; the last dimension changes fastest.
    pub cells: Vec<Cell>,
    /// The answer of the first cell.
    pub answer: Answer,
    /// Tokens in the prompt.
    pub prompt: usize,
}

impl Matrix {
    /// The first cell with another answer.
    pub fn first_difference(&self) -> Option<&Cell> {
        self.cells.iter().find(|cell| !cell.same())
    }

    /// `threads 2, chunk 7, neighbours 3, cache hit`.
    pub fn describe(&self, cell: &Cell) -> String {
        let names = self.dimensions.iter().zip(&cell.choices);
        let names: Vec<_> =
            names.map(|((name, choices), &choice)| format!("{name} {}", choices[choice])).collect();
        names.join(", ")
    }
}

/// Runs `prompt` and `count` greedy tokens after it through every combination. `neighbours` are the prompts of others.
///
/// # Errors
/// If the model cannot run, or `progress` asks to stop. Differences are no error.
pub fn same_answer(
    model: &Model,
    options: &Options,
    prompt: &[u32],
    neighbours: &[Vec<u32>],
    count: usize,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Matrix, Error> {
    let choices: Vec<Vec<Choice>> = DIMENSIONS.iter().map(|d| (d.choices)(options)).collect();
    let total: usize = choices.iter().map(Vec::len).product();
    let longest = neighbours.iter().map(Vec::len).chain([prompt.len()]).max().unwrap_or(1);
    let base = Options { context: Some(longest + count), ..options.clone() };
    let mut matrix = Matrix {
        dimensions: DIMENSIONS
            .iter()
            .zip(&choices)
            .map(|(d, c)| (d.name, c.iter().map(|c| c.name.clone()).collect()))
            .collect(),
        cells: vec![],
        answer: Answer::default(),
        prompt: prompt.len(),
    };
    for number in 0..total {
        let chosen = place(number, &choices);
        let mut setting = Setting { options: base.clone(), neighbours: 0, cached: false };
        chosen.iter().zip(&choices).for_each(|(&i, choices)| (choices[i].set)(&mut setting));
        let answer = run(model, &setting, prompt, neighbours, count)?;
        if number == 0 {
            matrix.answer = answer.clone();
        }
        matrix.cells.push(Cell {
            choices: chosen,
            token: first_difference(&answer.tokens, &matrix.answer.tokens),
            logits: first_difference(&answer.logits, &matrix.answer.logits),
        });
        if progress(number + 1, total).is_break() {
            return Err(Error::new(Kind::Run, format!("interrupted after {} of {total} runs", number + 1)));
        }
    }
    Ok(matrix)
}

/// The first place at which two lists differ, by value or by length.
fn first_difference<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))
}

/// The choices of a cell by its number.
fn place(mut number: usize, choices: &[Vec<Choice>]) -> Vec<usize> {
    let mut chosen: Vec<_> = choices
        .iter()
        .rev()
        .map(|choices| {
            let choice = number % choices.len();
            number /= choices.len();
            choice
        })
        .collect();
    chosen.reverse();
    chosen
}

fn run(
    model: &Model,
    setting: &Setting,
    prompt: &[u32],
    neighbours: &[Vec<u32>],
    count: usize,
) -> Result<Answer, Error> {
    let options = Options { sequences: 1 + setting.neighbours, ..setting.options.clone() };
    let seen = Seen::default();
    let plan = Watched { plan: model.plan(&model.graph, &options)?, seen: seen.clone() };
    let chunk = options.prefill_chunk;
    let mut engine = Engine::new(Box::new(plan), &model.graph, model.tokenizer.clone(), chunk);
    if setting.cached {
        engine.submit(greedy(prompt, count))?;
        finish(&mut engine, &seen, None)?;
    }
    // Some neighbours come first and some end earlier, so that rows change their places.
    let (before, after) = neighbours.split_at(neighbours.len().min(setting.neighbours) / 2);
    let other = |i: usize, tokens: &[u32]| greedy(tokens, count / 2 + i * 3);
    for (i, tokens) in before.iter().enumerate() {
        engine.submit(other(i, tokens))?;
    }
    let id = engine.submit(greedy(prompt, count))?;
    for (i, tokens) in after.iter().take(setting.neighbours - before.len()).enumerate() {
        engine.submit(other(i + before.len(), tokens))?;
    }
    let (answer, cached) = finish(&mut engine, &seen, Some(id))?;
    if setting.cached != (cached > 0) {
        let expected = if setting.cached { "tokens found in the cache" } else { "none" };
        return Err(Error::new(Kind::Run, format!("cache: expected {expected}, found {cached}")));
    }
    Ok(answer)
}

fn greedy(prompt: &[u32], count: usize) -> Request {
    let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    Request { prompt: prompt.to_vec(), max_tokens: Some(count), sampling, ..Request::default() }
}

/// Runs everything to its end; returns the answer to `wanted` and how many of its tokens were cached.
fn finish(engine: &mut Engine, seen: &Seen, wanted: Option<RequestId>) -> Result<(Answer, usize), Error> {
    let (mut answer, mut cached, mut events) = (Answer::default(), 0, vec![]);
    while !engine.is_idle() {
        engine.step(&mut events)?;
        // The logits of a step are read in the order in which its tokens are chosen.
        let mut read = std::mem::take(&mut *seen.lock().expect("nobody panics while it is held")).into_iter();
        for event in events.drain(..) {
            match event {
                Event::Token { request, token, .. } => {
                    let logits = read.next().unwrap_or_default();
                    if Some(request) == wanted {
                        answer.tokens.push(token);
                        answer.logits.push(logits);
                    }
                }
                Event::Finished { request, usage, .. } if Some(request) == wanted => cached = usage.cached,
                // Answers that all fail alike are not the same answer.
                Event::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok((answer, cached))
}

/// Hashes of the rows of logits that were read.
type Seen = Arc<Mutex<Vec<[u8; 32]>>>;

/// A plan whose logits are watched.
struct Watched {
    plan: Box<dyn Plan>,
    seen: Seen,
}

impl Plan for Watched {
    fn limits(&self) -> &Limits {
        self.plan.limits()
    }

    fn memory(&self) -> Memory {
        self.plan.memory()
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), nibble_backend::Error> {
        self.plan.run(step)
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), nibble_backend::Error> {
        self.plan.read(output, row, into)?;
        let mut hash = blake3::Hasher::new();
        into.iter().for_each(|x| {
            hash.update(&x.to_le_bytes());
        });
        self.seen.lock().expect("nobody panics while it is held").push(*hash.finalize().as_bytes());
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), nibble_backend::Error> {
        self.plan.copy_page(from, to)
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), nibble_backend::Error> {
        self.plan.copy_state(from, to)
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), nibble_backend::Error> {
        self.plan.clear_state(slot)
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let split = self.dimensions.len().saturating_sub(2);
        let name =
            |i: usize, choice: usize| format!("{} {}", self.dimensions[i].0, self.dimensions[i].1[choice]);
        let names = |range: std::ops::Range<usize>, cell: &Cell| {
            range.map(|i| name(i, cell.choices[i])).collect::<Vec<_>>().join(", ")
        };
        let columns: usize = self.dimensions[split..].iter().map(|(_, choices)| choices.len()).product();
        let Some(head) = self.cells.chunks(columns).next() else { return Ok(()) };
        let heads: Vec<_> = head.iter().map(|cell| names(split..self.dimensions.len(), cell)).collect();
        let rows: Vec<_> = self.cells.chunks(columns).map(|row| (names(0..split, &row[0]), row)).collect();
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        writeln!(f, "{:width$}  {}", "", heads.join("  "))?;
        for (name, row) in rows {
            write!(f, "{name:width$}")?;
            for (cell, head) in row.iter().zip(&heads) {
                let text = match (cell.token, cell.logits) {
                    (None, None) => "same".into(),
                    (None, Some(at)) => format!("logits {at}"),
                    (Some(at), _) => format!("token {at}"),
                };
                write!(f, "  {text:^width$}", width = head.len())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_says_the_same_in_every_cell() {
        let model = Model::builtin().unwrap();
        let prompt = model.encode("Tell me a story about a fox and a lantern that would not burn.").unwrap();
        let others: Vec<_> = ["Once", "The owl said", "A very long time ago there was"]
            .map(|text| model.encode(text).unwrap())
            .into();
        let mut told = 0;
        let matrix = same_answer(&model, &Options::default(), &prompt, &others, 8, &mut |_, _| {
            told += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(matrix.first_difference().is_none(), "{matrix}");
        assert!(matrix.cells.len() >= 32 && told == matrix.cells.len());
        assert_eq!((matrix.answer.tokens.len(), matrix.answer.logits.len()), (8, 8));
        let text = matrix.to_string();
        assert_eq!(text.matches("same").count(), matrix.cells.len(), "{text}");
    }

    #[test]
    fn a_difference_is_shown_with_its_place() {
        let dimensions =
            ["threads", "chunk", "cache"].map(|name| (name, vec!["1".to_owned(), "2".to_owned()]));
        let cell = |number: usize| Cell {
            choices: vec![number / 4, number / 2 % 2, number % 2],
            token: (number == 5).then_some(3),
            logits: (number >= 5).then_some(2),
        };
        let matrix = Matrix {
            dimensions: dimensions.into(),
            cells: (0..8).map(cell).collect(),
            answer: Answer::default(),
            prompt: 1,
        };
        let first = matrix.first_difference().unwrap();
        assert_eq!(matrix.describe(first), "threads 2, chunk 1, cache 2");
        let text = matrix.to_string();
        assert!(text.contains("token 3") && text.matches("logits 2").count() == 2, "{text}");
    }

    #[test]
    fn lists_differ_by_value_and_by_length() {
        assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 2, 3], &[1, 9, 3]), Some(1));
        assert_eq!(first_difference(&[1], &[1, 2]), Some(1));
    }

    #[test]
    fn every_combination_comes_once() {
        let choices: Vec<Vec<Choice>> = DIMENSIONS.iter().map(|d| (d.choices)(&Options::default())).collect();
        let total: usize = choices.iter().map(Vec::len).product();
        let mut all: Vec<_> = (0..total).map(|number| place(number, &choices)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), total);
    }
}
