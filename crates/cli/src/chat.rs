//! `nibble chat`: a conversation at the terminal.

use crate::{
    args::ChatArgs,
    generate::{catch_interrupts, generate},
    run::{open_with, start},
    terminal,
    trace::Tracing,
};
use nibble_api::{Engine, Error, FinishReason, Kind, Message, Model, OpenOptions, Request};
use rustyline::{DefaultEditor, error::ReadlineError};
use std::{io::Write, path::Path};

const HELP: &str = "/help        this text
/reset       forget the conversation
/save FILE   write the conversation as JSON
/exit        leave (or Ctrl-D)
Ctrl-C stops an answer.";

pub fn run(args: &ChatArgs) -> Result<(), Error> {
    let tracing = Tracing::start(&args.trace)?;
    let model = open_with(args.model.as_deref(), &tracing.open(OpenOptions::default()))?;
    // Before any memory is reserved: without a template there is nothing to talk with.
    model.template()?;
    let mut engine = start(&model, &tracing.run(args.device.options()))?;
    let failed = |e: ReadlineError| Error::new(Kind::Run, format!("the terminal cannot be read: {e}"));
    let mut editor = DefaultEditor::new().map_err(failed)?;
    catch_interrupts();
    terminal::note("type a message; /help lists commands");
    let start: Vec<_> = args.system.iter().map(|s| Message::new("system", s)).collect();
    let mut messages = start.clone();
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Eof) => return tracing.finish(),
            Err(ReadlineError::Interrupted) => continue,
            Err(e) => return Err(failed(e)),
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        // A line that the history refuses (a repeated one) is no loss.
        let _ = editor.add_history_entry(line);
        match line.split_once(' ').unwrap_or((line, "")) {
            ("/help", _) => terminal::note(HELP),
            ("/reset", _) => messages.clone_from(&start),
            ("/exit" | "/quit", _) => return tracing.finish(),
            ("/save", path) => save(path.trim(), &messages),
            (command, _) if command.starts_with('/') => {
                terminal::warn(format_args!("unknown command {command}; /help lists them"));
            }
            _ => answer(args, &model, &mut engine, &tracing, &mut messages, line)?,
        }
    }
}

/// Asks, prints, and adds both to the conversation; a question that cannot be asked is taken back.
fn answer(
    args: &ChatArgs,
    model: &Model,
    engine: &mut Engine,
    tracing: &Tracing,
    messages: &mut Vec<Message>,
    line: &str,
) -> Result<(), Error> {
    messages.push(Message::new("user", line));
    let result = ask(args, model, engine, tracing, messages);
    match result {
        Ok((text, summary)) => {
            terminal::say("\n")?;
            terminal::note(summary);
            messages.push(Message::new("assistant", &text));
            Ok(())
        }
        Err(e) if matches!(e.kind, Kind::Fit | Kind::Usage) => {
            messages.pop();
            terminal::failure(&e);
            terminal::note("the message was taken back; /reset starts anew");
            Ok(())
        }
        Err(e) => Err(e),
    }
}

fn ask(
    args: &ChatArgs,
    model: &Model,
    engine: &mut Engine,
    tracing: &Tracing,
    messages: &[Message],
) -> Result<(String, String), Error> {
    let request = Request {
        prompt: model.encode_chat(messages)?,
        max_tokens: args.sampling.max_tokens.map(|n| n as usize),
        sampling: args.sampling.params()?,
        stop: args.sampling.stop.clone(),
        stop_tokens: model.stop_tokens(),
    };
    let answer = generate(engine, request, tracing, |text| terminal::say(text))?;
    if answer.reason == FinishReason::Length {
        terminal::warn("the answer was cut at the token limit");
    }
    let summary = answer.summary();
    Ok((answer.text, summary))
}

fn save(path: &str, messages: &[Message]) {
    if path.is_empty() {
        return terminal::warn("/save needs a file name");
    }
    let text = serde_json::to_string_pretty(messages).unwrap_or_default();
    let write = |out: &mut dyn Write| writeln!(out, "{text}");
    match nibble_api::replace(Path::new(path), |e| e, write) {
        Ok(()) => terminal::note(format_args!("saved {} messages to {path}", messages.len())),
        Err(e) => terminal::error(format_args!("{path}: cannot be written: {e}")),
    }
}
