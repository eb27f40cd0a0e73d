//! `nibble perplexity`: how well a model foresees a text, and how far it is from another one on it.

use crate::{
    args::PerplexityArgs,
    generate::{interrupted, stoppable},
    output,
    run::open,
    terminal,
};
use indicatif::ProgressBar;
use nibble_api::{Error, Kind, Model};
use nibble_parity::{BaseFile, Chunks, Cut, Divergence, Estimate};
use std::{io::Write, ops::ControlFlow, path::Path, time::Instant};

/// Tokens of context when nobody asks for others: what published figures use.
const CONTEXT: usize = 512;

pub fn run(args: &PerplexityArgs) -> Result<(), Error> {
    if let Some(path) = &args.save_logits {
        output::check(path, Some(&args.model))?;
    }
    let model = open(Some(&args.model))?;
    stoppable(|| match &args.kl {
        Some(path) => divergence(args, &model, path),
        None => perplexity(args, &model),
    })
}

fn perplexity(args: &PerplexityArgs, model: &Model) -> Result<(), Error> {
    let Some(path) = &args.text else { return Ok(()) };
    let started = Instant::now();
    let text = std::fs::read(path)
        .map_err(|e| Error::new(Kind::Usage, format!("{}: cannot be read: {e}", path.display())))?;
    let options = args.device.options();
    let cut = Cut {
        ctx: options.context.unwrap_or(CONTEXT),
        stride: args.stride.map(|n| n as usize),
        chunks: args.chunks.map(|n| n as usize),
    };
    let chunks = Chunks::of_text(model, &String::from_utf8_lossy(&text), &cut)?;
    let bar = terminal::bar(chunks.count() as u64, "chunks");
    let measure = |save: Option<&mut dyn Write>| -> Result<Estimate, Error> {
        let mut engine = model.start(&chunks.options(&options))?;
        nibble_parity::perplexity(&mut engine, &chunks, save, &mut |done, now| {
            let so_far = format!("perplexity {:.4} +/- {:.4}, chunks", now.perplexity, now.error);
            step(&bar, done, so_far)
        })
    };
    let estimate = match &args.save_logits {
        None => measure(None),
        Some(path) => {
            let io = |e| output::unwritable(path, e);
            let head = chunks.head(model.config.vocab)?;
            let mut estimate = None;
            nibble_api::replace(path, io, |out| {
                head.write(out).map_err(io)?;
                estimate = Some(measure(Some(out))?);
                Ok(())
            })
            .map(|()| estimate.expect("it was measured"))
        }
    };
    bar.finish_and_clear();
    let estimate = estimate?;
    if args.json {
        let json = serde_json::json!({ "perplexity": estimate.perplexity, "error": estimate.error,
            "tokens": estimate.tokens, "chunks": chunks.count(), "cut": cut });
        return terminal::say(format_args!("{json}\n"));
    }
    terminal::say(format_args!(
        "perplexity {:.4} +/- {:.4} over {} tokens in {} chunks\n",
        estimate.perplexity,
        estimate.error,
        estimate.tokens,
        chunks.count()
    ))?;
    terminal::note(format_args!("in {}", terminal::time(started.elapsed())));
    Ok(())
}

fn divergence(args: &PerplexityArgs, model: &Model, path: &Path) -> Result<(), Error> {
    let base = BaseFile::open(path)?;
    let (expected, found) = (base.head.vocab, model.config.vocab);
    let refuse = |what: String| Err(Error::new(Kind::Usage, format!("{}: {what}", path.display())));
    if expected != found {
        return refuse(format!("vocabulary: expected a model of {expected} tokens, found one of {found}"));
    }
    if let Some(token) = base.head.tokens.iter().find(|&&token| token as usize >= found) {
        return refuse(format!("tokens: expected ids below {found}, found {token}"));
    }
    if let Some(asked) = args.device.ctx.filter(|&asked| asked as usize != base.head.ctx) {
        return refuse(format!("context: it was made with {}, but --ctx asks for {asked}", base.head.ctx));
    }
    let chunks = Chunks::of_base(model, &base.head, args.chunks.map(|n| n as usize));
    let mut engine = model.start(&chunks.options(&args.device.options()))?;
    let bar = terminal::bar(chunks.count() as u64, "chunks");
    let found = nibble_parity::divergence(&mut engine, &chunks, &base, &mut |done, kl| {
        step(&bar, done, format!("mean KL {kl:.6}, chunks"))
    });
    bar.finish_and_clear();
    let found = found?;
    if args.json {
        return terminal::say(format_args!("{}\n", serde_json::json!(found)));
    }
    terminal::say(lines(&found))
}

fn step(bar: &ProgressBar, done: usize, message: String) -> ControlFlow<()> {
    bar.set_message(message);
    bar.set_position(done as u64);
    if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn lines(d: &Divergence) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:22}{value}\n"));
    line("tokens", d.model.tokens.to_string());
    line("perplexity", format!("{:.4} +/- {:.4}", d.model.perplexity, d.model.error));
    line("of the base", format!("{:.4} +/- {:.4}", d.base.perplexity, d.base.error));
    line("ln of their ratio", format!("{:.6} +/- {:.6}", d.ln_ratio[0], d.ln_ratio[1]));
    line("mean KL, nats", format!("{:.6} +/- {:.6}", d.kl[0], d.kl[1]));
    for &(percent, value) in &d.kl_percentiles {
        line(&format!("KL, {percent} %"), format!("{value:.6}"));
    }
    line("same likeliest token", format!("{:.3} +/- {:.3} %", 100.0 * d.top1[0], 100.0 * d.top1[1]));
    line("RMS of probability", format!("{:.3} %", 100.0 * d.rms_dp));
    text
}
