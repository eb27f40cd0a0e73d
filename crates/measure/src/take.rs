//! One take of one row, through the engine as a user would: requests in, steps, tokens out.

use crate::{
    case::{Case, Task},
    stats::{Draws, median},
};
use nibble_api::{Engine, Error, Event, Kind, PAGE_LEN, Request, SamplerParams};
use std::time::Instant;

/// Tokens over which a time per token is looked at, so that a single slow one says nothing.
const WINDOW: usize = 8;

/// How far such a time may lie from the steady one.
const STEADY: f64 = 0.10;

/// What a take brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Take {
    /// From the request until all of its tokens were there.
    pub seconds: f64,
    /// Until the first token of every sequence was there.
    pub first_s: f64,
    /// The time of each step.
    pub steps_s: Vec<f64>,
    /// Tokens of the prompts that were there already, all sequences together.
    pub cached: usize,
}

impl Take {
    /// Tokens per second, all sequences together.
    pub fn rate(&self, case: &Case) -> f64 {
        (case.tokens * case.batch) as f64 / self.seconds.max(1e-9)
    }

    /// The median time of a step in the second half.
    pub fn steady_s(&self) -> Option<f64> {
        median(&self.steps_s[self.steps_s.len() / 2..])
    }
}

/// Tokens until generation is steady: the first from which on the median of every eight consecutive times stays within
/// 10 % of the median of the second half. `None` if there are too few to say.
pub fn tokens_until_steady(steps_s: &[f64]) -> Option<usize> {
    if steps_s.len() < 2 * WINDOW {
        return None;
    }
    let steady = median(&steps_s[steps_s.len() / 2..])?;
    let away = |window: &[f64]| median(window).is_none_or(|m| (m / steady - 1.0).abs() > STEADY);
    Some(steps_s.windows(WINDOW).rposition(away).map_or(0, |last| last + 1))
}

/// Prompts for takes: random ids, so that none is found in the prefix cache, the same ones in every run.
pub struct Prompts {
    draws: Draws,
    vocab: usize,
    /// What the sequences of the row begin with.
    fills: Vec<Vec<u32>>,
}

impl Prompts {
    /// Prompts for a row, of ids below `vocab`.
    pub fn new(case: &Case, vocab: usize) -> Self {
        let mut prompts = Self { draws: Draws::new(case.context() as u64), vocab, fills: vec![] };
        prompts.fills = (0..case.batch).map(|_| prompts.random(case.depth)).collect();
        prompts
    }

    fn random(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.draws.below(self.vocab.max(1)) as u32).collect()
    }
}

/// The context to reserve for rows that need so much: two pages more for each sequence, so that a fill stays to be found
/// while the tokens after it come and go.
pub fn roomy(context: usize) -> usize {
    context + 2 * PAGE_LEN
}

/// Fills the context up to the row's depth, then measures. Filling is not part of the take; `cached` says how much of it
/// was found again.
///
/// # Errors
/// If the engine refuses or fails, or a token that was asked for did not come.
pub fn take(engine: &mut Engine, case: &Case, prompts: &mut Prompts) -> Result<Take, Error> {
    if case.depth > 0 {
        for fill in &prompts.fills {
            engine.submit(request(fill.clone(), 0))?;
        }
        run(engine, 0)?;
    }
    let (new, generate) = match case.task {
        Task::Prefill => (case.tokens, 1),
        Task::Decode => (1, case.tokens),
    };
    for i in 0..case.batch {
        let mut prompt = prompts.fills[i].clone();
        prompt.extend(prompts.random(new));
        engine.submit(request(prompt, generate))?;
    }
    run(engine, case.batch * generate)
}

/// Greedy, and never stopping early.
fn request(prompt: Vec<u32>, max_tokens: usize) -> Request {
    let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    Request { prompt, max_tokens: Some(max_tokens), sampling, ..Request::default() }
}

/// Steps until the engine is idle.
fn run(engine: &mut Engine, expected: usize) -> Result<Take, Error> {
    let (mut tokens, mut waiting, mut events) = (0, 0, vec![]);
    let mut take = Take { seconds: 0.0, first_s: 0.0, steps_s: vec![], cached: 0 };
    let mut answered = std::collections::BTreeSet::new();
    let start = Instant::now();
    let mut last = start;
    while !engine.is_idle() {
        engine.step(&mut events)?;
        let now = Instant::now();
        take.steps_s.push((now - last).as_secs_f64());
        last = now;
        for event in events.drain(..) {
            match event {
                Event::Token { request, .. } => {
                    tokens += 1;
                    if answered.insert(request) {
                        take.first_s = (now - start).as_secs_f64();
                    }
                }
                Event::Finished { usage, .. } => {
                    take.cached += usage.cached;
                    waiting += 1;
                }
                Event::Failed { error, .. } => return Err(error.into()),
                Event::Prefill { .. } => {}
            }
        }
    }
    take.seconds = (last - start).as_secs_f64();
    match tokens == expected && waiting > 0 {
        true => Ok(take),
        false => Err(Error::new(Kind::Run, format!("engine: expected {expected} tokens, found {tokens}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_api::{Model, Options};

    fn engine(model: &Model, case: &Case) -> Engine {
        let options = Options {
            threads: Some(1),
            context: Some(roomy(case.context())),
            sequences: case.batch,
            ..Options::default()
        };
        model.start(&options).unwrap()
    }

    #[test]
    fn a_take_counts_its_tokens_and_finds_its_fill_again() {
        let model = Model::builtin().unwrap();
        for (task, batch) in [(Task::Prefill, 1), (Task::Decode, 1), (Task::Decode, 3)] {
            for depth in [0, 70] {
                let case = Case { task, tokens: 20, depth, batch };
                let mut engine = engine(&model, &case);
                let mut prompts = Prompts::new(&case, model.graph.vocab());
                for _ in 0..3 {
                    let take = take(&mut engine, &case, &mut prompts).unwrap();
                    assert_eq!(take.cached, depth * batch, "{case}");
                    let steps = if task == Task::Prefill { 1 } else { 20 };
                    assert_eq!(take.steps_s.len(), steps, "{case}");
                    assert!(take.first_s > 0.0 && take.first_s <= take.seconds, "{case}");
                    assert_eq!(take.rate(&case), (20 * batch) as f64 / take.seconds);
                }
            }
        }
    }

    #[test]
    fn generation_is_steady_after_its_last_slow_stretch() {
        let mut steps = vec![1.0; 64];
        assert_eq!(tokens_until_steady(&steps), Some(0));
        steps[40] = 9.0;
        assert_eq!(tokens_until_steady(&steps), Some(0), "one slow token is no stretch");
        steps[..20].fill(2.0);
        let found = tokens_until_steady(&steps).unwrap();
        assert!((14..=20).contains(&found), "{found}");
        assert_eq!(tokens_until_steady(&steps[..10]), None);
    }
}
