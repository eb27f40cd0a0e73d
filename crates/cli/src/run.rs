//! `nibble run`: one prompt, one answer.

use crate::{
    args::{RunArgs, codecs},
    generate::{Answer, generate},
    terminal,
    trace::Tracing,
};
use nibble_api::{Engine, Error, Kind, Message, Model, OpenOptions, Options, Request};
use std::{
    io::{IsTerminal, Read},
    path::Path,
    time::{Duration, Instant},
};

/// What the story model is asked when nobody asks anything.
const STORY_PROMPT: &str = "Tell me a story about a brave fox.";

pub fn run(args: &RunArgs) -> Result<(), Error> {
    let (path, prompt) = model_and_prompt(args);
    let sampling = args.sampling.params()?;
    let seed = sampling.seed;
    let tracing = Tracing::start(&args.trace)?;
    let loading = Instant::now();
    let model = open_with(path, &tracing.open(OpenOptions::default()))?;
    let prompt = prompt_tokens(args, &model, path.is_some(), prompt)?;
    let mut engine = start(&model, &tracing.run(args.device.options()))?;
    let load = loading.elapsed();

    let request = Request {
        prompt,
        max_tokens: args.sampling.max_tokens.map(|n| n as usize),
        sampling,
        stop: args.sampling.stop.clone(),
        stop_tokens: model.stop_tokens(),
    };
    let say = |text: &str| if args.json { Ok(()) } else { terminal::say(text) };
    let answer = generate(&mut engine, request, &tracing, say)?;
    if args.json {
        terminal::say(format_args!("{}\n", json(&model, &answer, load, seed)))?;
    } else {
        terminal::say("\n")?;
    }
    terminal::note(format_args!("load {}; {}", terminal::time(load), answer.summary()));
    tracing.finish()
}

/// Opens a model while a spinner turns; without a path, the built-in one.
pub fn open(path: Option<&Path>) -> Result<Model, Error> {
    open_with(path, &OpenOptions::default())
}

/// [`open`] with choices.
pub fn open_with(path: Option<&Path>, options: &OpenOptions) -> Result<Model, Error> {
    let Some(path) = path else { return Model::builtin_with(options) };
    let spinner = terminal::spinner("opening the model");
    let model = Model::open_with(path, &codecs(), options);
    spinner.finish_and_clear();
    model
}

/// Reserves memory while a spinner turns; warns of a context that the model was not made for.
pub fn start(model: &Model, options: &Options) -> Result<Engine, Error> {
    let own = model.config.context;
    if let Some(context) = options.context.filter(|&context| context > own) {
        terminal::warn(format_args!("a context of {context} is longer than the model's own {own}"));
    }
    let placed = model.place(options)?;
    if let Some(note) = &placed.note {
        terminal::note(format_args!("{note}"));
    }
    let spinner = terminal::spinner("reserving memory");
    let engine = model.start_on(placed, options);
    spinner.finish_and_clear();
    engine
}

/// With one argument, it is a model if it is a file or looks like a path, else a prompt for the built-in model.
fn model_and_prompt(args: &RunArgs) -> (Option<&Path>, Option<&str>) {
    match (args.model.as_deref(), args.prompt.as_deref()) {
        (Some(one), None) => match one.to_str().filter(|text| !looks_like_a_path(text)) {
            Some(prompt) => (None, Some(prompt)),
            None => (Some(Path::new(one)), None),
        },
        (model, prompt) => (model.map(Path::new), prompt),
    }
}

fn looks_like_a_path(text: &str) -> bool {
    let wordless = !text.contains(char::is_whitespace);
    let path_like =
        text.ends_with(".gguf") || text.contains('/') || text.contains('\\') || text.starts_with('.');
    Path::new(text).exists() || (wordless && path_like)
}

fn prompt_tokens(
    args: &RunArgs,
    model: &Model,
    named: bool,
    prompt: Option<&str>,
) -> Result<Vec<u32>, Error> {
    if let Some(tokens) = &args.tokens {
        return Ok(tokens.clone());
    }
    let text = match prompt {
        Some(text) => text.to_owned(),
        None if !std::io::stdin().is_terminal() && named => read_stdin()?,
        None if !named => STORY_PROMPT.to_owned(),
        None => {
            let what = "no prompt: give it after the model or on standard input, or use `nibble chat`";
            return Err(Error::new(Kind::Usage, what));
        }
    };
    if args.raw || !model.has_template() {
        return model.encode(&text);
    }
    let system = args.system.as_ref().map(|s| Message::new("system", s));
    let messages: Vec<_> = system.into_iter().chain([Message::new("user", &text)]).collect();
    model.encode_chat(&messages)
}

pub fn read_stdin() -> Result<String, Error> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Error::new(Kind::Usage, format!("standard input: expected UTF-8 text: {e}")))?;
    Ok(text)
}

fn json(model: &Model, answer: &Answer, load: Duration, seed: u64) -> serde_json::Value {
    serde_json::json!({
        "model": model.checkpoint.path.display().to_string(),
        "text": answer.text,
        "prompt_tokens": answer.usage.prompt,
        "cached_tokens": answer.usage.cached,
        "drafted_tokens": 0,
        "tokens": answer.tokens,
        "finish_reason": answer.reason.name(),
        "seed": seed,
        "timings": {
            "load_ms": load.as_secs_f64() * 1e3,
            "first_token_ms": answer.first_token.as_secs_f64() * 1e3,
            "decode_ms": answer.decode.as_secs_f64() * 1e3,
            "prefill_tokens_per_second": answer.prefill_rate(),
            "decode_tokens_per_second": answer.decode_rate(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_argument_is_a_prompt_unless_it_looks_like_a_path() {
        assert!(looks_like_a_path("missing.gguf") && looks_like_a_path("./m") && looks_like_a_path("a/b"));
        assert!(!looks_like_a_path("Tell me a story") && !looks_like_a_path("either/or is hard, no?"));
        assert!(!looks_like_a_path("Once"));
    }
}
