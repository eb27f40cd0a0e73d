//! `nibble parity`: two sides, the same tokens, a verdict.

use crate::{
    args::ParityArgs,
    generate::{interrupted, stoppable},
    output,
    run::open,
    terminal,
};
use indicatif::ProgressBar;
use nibble_api::{Activations, Error, Kind, KvType, Model, Options};
use nibble_parity::{Device, Opening, Text, Work, default_texts, texts};
use std::{ops::ControlFlow, path::Path, sync::Arc, time::Instant};

/// The text that is run through all settings, and those of its neighbours.
const SAME_ANSWER: [&str; 4] = ["long-report", "rust", "german", "list"];

/// Tokens of it.
const SAME_ANSWER_PROMPT: usize = 150;

pub fn run(args: &ParityArgs) -> Result<(), Error> {
    if let Some(path) = &args.record {
        output::check(path, args.model.as_deref())?;
    }
    let model = Arc::new(open(args.model.as_deref())?);
    let options = options(args);
    let texts = chosen_texts(args)?;
    stoppable(|| match (&args.record, args.same_answer) {
        (_, true) => same_answer(args, &model, &options),
        (Some(path), _) => record(args, model, &options, &texts, path),
        _ => compare(args, model, &options, &texts),
    })
}

fn options(args: &ParityArgs) -> Options {
    let mut options = args.device.options();
    if args.exact {
        (options.activations, options.kv) = (Activations::F32, KvType::F32);
    }
    options
}

fn chosen_texts(args: &ParityArgs) -> Result<Vec<Text>, Error> {
    let mut chosen =
        match &args.prompts {
            Some(path) => {
                let read = std::fs::read_to_string(path);
                texts(&read.map_err(|e| {
                    Error::new(Kind::Usage, format!("{}: cannot be read: {e}", path.display()))
                })?)
            }
            None => default_texts(),
        };
    chosen.truncate(args.limit.unwrap_or(usize::MAX));
    Ok(chosen)
}

fn compare(args: &ParityArgs, model: Arc<Model>, options: &Options, texts: &[Text]) -> Result<(), Error> {
    let started = Instant::now();
    let context = nibble_parity::context(&model, options.context);
    let options = Options { context: Some(context), ..options.clone() };
    let opening = Opening {
        model: &model,
        options: &options,
        program: args.program.as_deref(),
        tokens: args.tokens.as_deref(),
        texts,
    };
    let spinner = terminal::spinner("opening the reference");
    let mut reference = nibble_parity::open(&args.against, &opening)?;
    let mut subject = Device::new(model.clone(), &options)?;
    spinner.finish_and_clear();
    let bounds = args.bounds.as_deref().unwrap_or("");
    let work = Work { texts, continuation: args.max_tokens, bounds };
    let bar = terminal::bar(0, "comparing");
    let report = nibble_parity::compare(&mut subject, reference.as_mut(), &work, context, &mut |now| {
        bar.set_message(now.what.to_owned());
        step(&bar, now.done, now.total)
    });
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        terminal::say(format_args!("{}\n", report.json()))?;
    } else {
        terminal::say(&report)?;
    }
    terminal::note(format_args!("in {}", terminal::time(started.elapsed())));
    if report.passes() {
        return Ok(());
    }
    let why = report.broken.first().map_or("", String::as_str);
    Err(Error::new(Kind::Run, format!("parity: FAIL: {why}")))
}

/// Moves a bar on; stops when Ctrl-C was pressed.
fn step(bar: &ProgressBar, done: usize, total: usize) -> ControlFlow<()> {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn record(
    args: &ParityArgs,
    model: Arc<Model>,
    options: &Options,
    texts: &[Text],
    path: &Path,
) -> Result<(), Error> {
    let context = nibble_parity::context(&model, options.context);
    let device = args.against.clone();
    let options = nibble_parity::exact(&Options { device, context: Some(context), ..options.clone() });
    let mut side = Device::new(model, &options)?;
    let work = Work { texts, continuation: args.max_tokens, bounds: "" };
    let (prompts, cut) = nibble_parity::prompts(&mut side, &work, context)?;
    let bar = terminal::bar(0, "recording");
    let written =
        nibble_parity::write_record(path, &mut side, prompts, &mut |done, total| step(&bar, done, total));
    bar.finish_and_clear();
    let written = written?;
    let positions: usize = written.iter().map(nibble_parity::Prompt::positions).sum();
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    terminal::note(format_args!(
        "{}: {positions} positions of {} prompts ({cut} cut to the context of {context}), {}",
        path.display(),
        written.len(),
        terminal::size(size)
    ));
    Ok(())
}

fn same_answer(args: &ParityArgs, model: &Model, options: &Options) -> Result<(), Error> {
    let started = Instant::now();
    let context = nibble_parity::context(model, options.context);
    let count = args.max_tokens.clamp(1, (context / 2).max(1));
    // Of two tokens, the first can be found in the cache; the last never is.
    let most = context.saturating_sub(2 * count).max(2);
    let all = default_texts();
    let mut prompts = SAME_ANSWER.iter().map(|name| {
        let text = all.iter().find(|text| text.name == *name).map_or("", |text| text.text.as_str());
        let mut tokens = model.encode(text)?;
        tokens.truncate(most.min(SAME_ANSWER_PROMPT));
        Ok(tokens)
    });
    let prompt = prompts.next().transpose()?.unwrap_or_default();
    let neighbours: Vec<_> = prompts.collect::<Result<_, Error>>()?;
    let bar = terminal::bar(0, "runs");
    let matrix =
        nibble_parity::same_answer(model, options, &prompt, &neighbours, count, &mut |done, total| {
            step(&bar, done, total)
        });
    bar.finish_and_clear();
    let matrix = matrix?;
    let first = matrix.first_difference().map(|cell| matrix.describe(cell));
    if args.json {
        let cells: Vec<_> = matrix
            .cells
            .iter()
            .map(|cell| {
                serde_json::json!({ "setting": matrix.describe(cell), "same": cell.same(),
                    "first_token": cell.token, "first_logits": cell.logits })
            })
            .collect();
        let json = serde_json::json!({ "prompt_tokens": matrix.prompt, "tokens": matrix.answer.tokens,
            "same": first.is_none(), "cells": cells });
        terminal::say(format_args!("{json}\n"))?;
    } else {
        terminal::say(format_args!(
            "{} tokens after {} of prompt, tokens and bits of logits, all against the first\n{matrix}",
            matrix.answer.tokens.len(),
            matrix.prompt
        ))?;
    }
    terminal::note(format_args!("{} runs in {}", matrix.cells.len(), terminal::time(started.elapsed())));
    match first {
        None => Ok(()),
        Some(first) => Err(Error::new(Kind::Run, format!("same answer: FAIL: another one with {first}"))),
    }
}
