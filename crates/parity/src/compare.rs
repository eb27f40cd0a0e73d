//! A comparison: the same tokens through both sides, position by position.

use crate::{
    agreement::{self, Agreement, Place, RowAgreement},
    bounds::Bounds,
    prompts::Text,
    side::{Form, Identity, Precision, Prompt, Side},
    sides::device::Device,
    sovereignty::{self, Sovereignty},
    trace::{self, TraceReport},
    weights::WeightReport,
};
use nibble_api::{Error, Kind, Model};
use serde::Serialize;
use std::{ops::ControlFlow, sync::mpsc::sync_channel};

/// Rows that the reference may be ahead.
const AHEAD: usize = 4;

/// What is compared.
pub struct Work<'a> {
    /// Texts, for sides that do not bring their own prompts.
    pub texts: &'a [Text],
    /// Tokens of greedy continuation of each.
    pub continuation: usize,
    /// Bounds instead of the defaults: `kl=0.1,top1=0.95`.
    pub bounds: &'a str,
}

/// How far a comparison has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is going on.
    pub what: &'a str,
    /// Done.
    pub done: usize,
    /// Of so many.
    pub total: usize,
}

/// Where two greedy continuations part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// The prompt.
    pub prompt: String,
    /// How many tokens they share.
    pub after: usize,
    /// What the model and the reference say next.
    pub tokens: [u32; 2],
    /// By how much each one's choice leads its second choice.
    pub leads: [f64; 2],
}

/// Greedy continuations of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Greedy {
    /// How many there are.
    pub continuations: usize,
    /// Tokens in each.
    pub tokens: usize,
    /// How many part.
    pub parted: usize,
    /// The one that parts after the fewest tokens.
    pub first: Option<Divergence>,
}

/// What was compared, with whom, and what came out.
#[derive(Clone, Debug)]
pub struct Report {
    /// The side under test.
    pub subject: Identity,
    /// The side that it is compared with.
    pub reference: Identity,
    /// What the check of the reference said.
    pub checked: String,
    /// The precision of the less exact side.
    pub precision: Precision,
    /// Prompts.
    pub prompts: Vec<String>,
    /// How many of them were cut to the context, and to how many tokens.
    pub cut: (usize, usize),
    /// Whether log-probabilities were compared, not logits.
    pub log_probs: bool,
    /// Over all positions.
    pub agreement: Agreement,
    /// Greedy continuations, if the reference knows any.
    pub greedy: Option<Greedy>,
    /// Layer by layer, if both sides know.
    pub trace: Option<TraceReport>,
    /// Weight by weight, if both sides know.
    pub weights: Option<WeightReport>,
    /// Whether a framework is inside.
    pub sovereignty: Sovereignty,
    /// What still counted as agreement.
    pub bounds: Bounds,
    /// What did not: a sentence each. None: PASS.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether all bounds hold.
    pub fn passes(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Prompts for two sides: those that the reference brings, or the texts with the subject's continuations.
///
/// # Errors
/// If the texts cannot be tokenized or the subject fails.
pub fn prompts(subject: &mut Device, work: &Work<'_>, context: usize) -> Result<(Vec<Prompt>, usize), Error> {
    let model = subject.model().clone();
    let most = context.saturating_sub(work.continuation).max(1);
    let (mut prompts, cut) = crate::prompts::tokens(&model, work.texts, most)?;
    for prompt in &mut prompts {
        let chosen = subject.greedy(&prompt.tokens, work.continuation.min(context - prompt.tokens.len()))?;
        prompt.continuation = chosen.as_ref().map_or(0, Vec::len);
        prompt.tokens.extend(chosen.into_iter().flatten());
        // What the last token of a continuation says is not looked at.
        prompt.end = prompt.tokens.len() - usize::from(prompt.continuation > 0);
    }
    Ok((prompts, cut))
}

/// The most tokens that any of the default prompts of a model may have: its context.
pub fn context(model: &Model, asked: Option<usize>) -> usize {
    /// Longer than all default texts with their continuations in any vocabulary.
    const ENOUGH: usize = 1024;
    asked.unwrap_or(ENOUGH).min(model.config.context.max(1))
}

/// Compares `subject`, whose plan holds `context` tokens, with `reference`.
///
/// # Errors
/// If a side fails or cannot be trusted, or `progress` asks to stop. Disagreement is no error.
pub fn compare(
    subject: &mut Device,
    reference: &mut dyn Side,
    work: &Work<'_>,
    context: usize,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Report, Error> {
    // Before any work, which may take hours: a word that is no bound.
    let precision = subject.precision().max(reference.precision());
    let mut bounds = Bounds::of(precision);
    if !work.bounds.is_empty() {
        bounds.set(work.bounds)?;
    }
    let own = reference.prompts().map(<[Prompt]>::to_vec);
    let (prompts, cut) = match own {
        Some(prompts) => (within(prompts, subject, context)?, 0),
        None => prompts(subject, work, context)?,
    };
    let checked = match prompts.first() {
        Some(first) => reference.check(first)?,
        None => return Err(Error::new(Kind::Usage, "prompts: expected at least one, found none")),
    };
    let mut total = Total { form: reference.form(), ..Total::default() };
    let positions: usize = prompts.iter().map(Prompt::positions).sum();
    for (number, prompt) in prompts.iter().enumerate() {
        let known = total.agreement.positions;
        let result = total.add(number, prompt, subject, reference);
        result.map_err(|e| Error::new(e.kind, format!("prompt `{}`: {e}", prompt.name)))?;
        let found = total.agreement.positions - known;
        if found != prompt.positions() {
            let (name, expected) = (&prompt.name, prompt.positions());
            let what =
                format!("prompt `{name}`: expected {expected} positions from both sides, found {found}");
            return Err(Error::new(Kind::Run, what));
        }
        go_on(progress(Progress { what: "comparing", done: total.agreement.positions, total: positions }))?;
    }
    go_on(progress(Progress { what: "comparing layers", done: positions, total: positions }))?;
    let texts = trace::texts(prompts.iter().map(|p| &p.tokens[..p.tokens.len() - p.continuation]));
    let trace = match reference.trace(&texts)? {
        Some(right) => subject.trace(&texts)?.and_then(|found| right.compare(&found, bounds.layers)),
        None => None,
    };
    let weights = match (reference.weights(), subject.weights()) {
        (Some(right), Some(found)) => Some(right.compare(&found)),
        _ => None,
    };
    let sovereignty = sovereignty::check();
    let mut broken: Vec<String> =
        weights.iter().flat_map(|w| &w.differ).take(3).map(|name| weight_differs(name)).collect();
    broken.extend(bounds.broken(&total.agreement, trace.as_ref()));
    if !sovereignty.foreign.is_empty() {
        broken.push(sovereignty.summary());
    }
    Ok(Report {
        subject: subject.identity().clone(),
        reference: reference.identity().clone(),
        checked,
        precision,
        prompts: prompts.into_iter().map(|p| p.name).collect(),
        cut: (cut, context),
        log_probs: total.form != Form::Logits,
        agreement: total.agreement,
        greedy: (total.greedy.continuations > 0).then_some(total.greedy),
        trace,
        weights,
        sovereignty,
        bounds,
        broken,
    })
}

fn go_on(flow: ControlFlow<()>) -> Result<(), Error> {
    if flow.is_break() { Err(Error::new(Kind::Run, "interrupted: there is no verdict")) } else { Ok(()) }
}

/// `layer 3: weight ...`, for `layer.3.attn.q`.
fn weight_differs(name: &str) -> String {
    let layer = name.strip_prefix("layer.").and_then(|rest| rest.split('.').next());
    let layer = layer.map_or(String::new(), |layer| format!("layer {layer}: "));
    format!("{layer}weight `{name}` is not the same")
}

/// Stored prompts, all of which must fit the subject's plan and vocabulary.
fn within(prompts: Vec<Prompt>, subject: &Device, context: usize) -> Result<Vec<Prompt>, Error> {
    let vocab = subject.model().config.vocab;
    for prompt in &prompts {
        if prompt.end > context {
            let (name, found) = (&prompt.name, prompt.end);
            let what =
                format!("prompt `{name}`: expected at most {context} tokens, found {found}; raise --ctx");
            return Err(Error::new(Kind::Fit, what));
        }
        if let Some(token) = prompt.tokens.iter().find(|&&token| token as usize >= vocab) {
            let what = format!("prompt `{}`: expected tokens below {vocab}, found {token}", prompt.name);
            return Err(Error::new(Kind::Usage, what));
        }
    }
    Ok(prompts)
}

/// What was found so far.
struct Total {
    form: Form,
    agreement: Agreement,
    greedy: Greedy,
}

impl Default for Total {
    fn default() -> Self {
        Self { form: Form::Logits, agreement: Agreement::default(), greedy: Greedy::default() }
    }
}

impl Total {
    /// Runs a prompt through both sides at once and takes in its rows.
    fn add(
        &mut self,
        number: usize,
        prompt: &Prompt,
        subject: &mut Device,
        reference: &mut dyn Side,
    ) -> Result<(), Error> {
        let mut parted = None;
        let first_choice = prompt.tokens.len() - prompt.continuation - usize::from(prompt.continuation > 0);
        let form = self.form;
        lockstep(prompt, subject, reference, |position, mine, right| {
            let row = agreement::compare(mine, right, form)
                .map_err(|e| Error::new(e.kind, format!("position {position}: {e}")))?;
            if prompt.continuation > 0
                && position >= first_choice
                && row.top[0] != row.top[1]
                && parted.is_none()
            {
                parted = Some(divergence(prompt, position - first_choice, &row));
            }
            self.agreement.add(Place { prompt: number, position }, &row);
            Ok(())
        })?;
        if prompt.continuation > 0 {
            self.greedy.continuations += 1;
            self.greedy.tokens = self.greedy.tokens.max(prompt.continuation);
            if let Some(parted) = parted {
                self.greedy.parted += 1;
                if self.greedy.first.as_ref().is_none_or(|first| parted.after < first.after) {
                    self.greedy.first = Some(parted);
                }
            }
        }
        Ok(())
    }
}

fn divergence(prompt: &Prompt, after: usize, row: &RowAgreement) -> Divergence {
    Divergence { prompt: prompt.name.clone(), after, tokens: row.top, leads: row.lead }
}

/// Runs a prompt through both sides at the same time and hands over the rows of each position together. Neither side's
/// rows are ever all in memory.
fn lockstep(
    prompt: &Prompt,
    subject: &mut Device,
    reference: &mut dyn Side,
    mut both: impl FnMut(usize, &[f32], &[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<(usize, Vec<f32>)>(AHEAD);
        let other = scope.spawn(move || {
            // Nobody listens any more if the subject has failed.
            reference.rows(prompt, &mut |position, row| drop(send.send((position, row.to_vec()))))
        });
        let mut result = Ok(());
        let ran = subject.rows(prompt, &mut |position, mine| {
            if result.is_ok() {
                result = match receive.recv() {
                    Ok((other, right)) if other == position => both(position, mine, &right),
                    // The reference has failed or left positions out; it or the count of positions says so.
                    _ => Ok(()),
                };
            }
        });
        drop(receive);
        let other = other.join().unwrap_or_else(|_| Err(Error::new(Kind::Run, "the reference panicked")));
        ran.and(other).and(result)
    })
}
