//! One answer: steps until it ends, text as it comes, Ctrl-C, figures.

use crate::{terminal, trace::Tracing};
use indicatif::ProgressBar;
use nibble_api::{Engine, Error, Event, FinishReason, Request, Usage};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Whether work that looks at [`interrupted`] is going on.
static STOPPABLE: AtomicBool = AtomicBool::new(false);

/// Set by Ctrl-C during such work.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Does `work`, which ends early once [`interrupted`], so that Ctrl-C ends it and not the program. A second Ctrl-C
/// during the work, or one outside of it, ends the program.
pub fn stoppable<T>(work: impl FnOnce() -> T) -> T {
    catch_interrupts();
    INTERRUPTED.store(false, Ordering::SeqCst);
    STOPPABLE.store(true, Ordering::SeqCst);
    let result = work();
    STOPPABLE.store(false, Ordering::SeqCst);
    result
}

/// Takes over Ctrl-C, which ends the program unless work is [`stoppable`].
pub fn catch_interrupts() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        let handler = || {
            if !STOPPABLE.load(Ordering::SeqCst) || INTERRUPTED.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        };
        if let Err(e) = ctrlc::set_handler(handler) {
            terminal::warn(format_args!("Ctrl-C will end the program without a summary: {e}"));
        }
    });
}

/// Whether Ctrl-C was pressed during the work at hand.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// An answer and its figures.
pub struct Answer {
    /// The text.
    pub text: String,
    /// The tokens generated, without the one that ended it.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens counted.
    pub usage: Usage,
    /// From the start to the first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Answer {
    /// Prompt tokens that ran, per second until the first token.
    pub fn prefill_rate(&self) -> f64 {
        (self.usage.prompt - self.usage.cached) as f64 / self.first_token.as_secs_f64().max(1e-9)
    }

    /// Tokens after the first, per second.
    pub fn decode_rate(&self) -> f64 {
        self.usage.generated.saturating_sub(1) as f64 / self.decode.as_secs_f64().max(1e-9)
    }

    /// One line with all of it.
    pub fn summary(&self) -> String {
        let prompt = format!(
            "prompt {} tokens ({} cached), first token after {}, {:.1} tok/s",
            self.usage.prompt,
            self.usage.cached,
            terminal::time(self.first_token),
            self.prefill_rate(),
        );
        let ended = match self.reason {
            FinishReason::Stop => "end of turn",
            FinishReason::Length => "token limit",
            FinishReason::Cancelled => "interrupted",
        };
        let generated = self.usage.generated;
        if generated < 2 {
            return format!("{prompt}; generated {generated} tokens ({ended})");
        }
        let (time, rate) = (terminal::time(self.decode), self.decode_rate());
        format!("{prompt}; generated {generated} tokens, {time} after the first, {rate:.1} tok/s ({ended})")
    }
}

/// Runs one request to its end and passes text on as soon as it is certain.
///
/// # Errors
/// If the request is refused or the device fails; also if `text` fails, as when stdout is closed.
pub fn generate(
    engine: &mut Engine,
    request: Request,
    tracing: &Tracing,
    text: impl FnMut(&str) -> Result<(), Error>,
) -> Result<Answer, Error> {
    stoppable(|| answer(engine, request, tracing, text))
}

fn answer(
    engine: &mut Engine,
    request: Request,
    tracing: &Tracing,
    mut text: impl FnMut(&str) -> Result<(), Error>,
) -> Result<Answer, Error> {
    let stop_tokens = request.stop_tokens.clone();
    let start = Instant::now();
    let id = engine.submit(request)?;
    let mut events = Vec::new();
    let mut bar: Option<ProgressBar> = None;
    let mut first = None;
    let mut last = start;
    let (mut all, mut tokens) = (String::new(), vec![]);
    loop {
        engine.step(&mut events)?;
        tracing.keep_up()?;
        if interrupted() {
            events.extend(engine.cancel(id));
        }
        for event in events.drain(..) {
            match event {
                Event::Prefill { done, total, .. } if done < total => {
                    let bar = bar.get_or_insert_with(|| terminal::bar(total as u64, "reading the prompt"));
                    bar.set_position(done as u64);
                }
                Event::Prefill { .. } => {}
                Event::Token { token, text: part, .. } => {
                    bar.take().inspect(ProgressBar::finish_and_clear);
                    last = Instant::now();
                    first.get_or_insert(last);
                    if !stop_tokens.contains(&token) {
                        tokens.push(token);
                    }
                    pass(&mut text, &part)?;
                    all.push_str(&part);
                }
                Event::Failed { error, .. } => {
                    bar.take().inspect(ProgressBar::finish_and_clear);
                    return Err(error.into());
                }
                Event::Finished { text: part, reason, usage, .. } => {
                    bar.take().inspect(ProgressBar::finish_and_clear);
                    pass(&mut text, &part)?;
                    all.push_str(&part);
                    let first = first.unwrap_or_else(Instant::now);
                    return Ok(Answer {
                        text: all,
                        tokens,
                        reason,
                        usage,
                        first_token: first - start,
                        decode: last.saturating_duration_since(first),
                    });
                }
            }
        }
    }
}

fn pass(text: &mut impl FnMut(&str) -> Result<(), Error>, part: &str) -> Result<(), Error> {
    if part.is_empty() { Ok(()) } else { text(part) }
}
