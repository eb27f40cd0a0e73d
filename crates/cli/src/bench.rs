//! `nibble bench`: how fast, how far from the limits of the machine, and beside others.

use crate::{
    args::{BenchArgs, codecs},
    cache, output, terminal,
};
use nibble_api::{Error, Kind, Model};
use nibble_measure::{Bench, Contender, DeviceLimits, Lists, PEERS, Progress, peer};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let open = || match &args.model {
        Some(path) => Model::open(path, &codecs()),
        None => Model::builtin(),
    };
    if args.limits {
        return limits(args, &open()?);
    }
    if args.gpu_modes {
        return gpu_modes(args, &open()?);
    }
    if let Some(counts) = args.soak {
        let parts = nibble_measure::soak(&open, &args.device.options(), counts)?;
        if args.json {
            terminal::say(format_args!("{}\n", serde_json::json!({ "command": command(), "soak": parts })))?;
        } else {
            terminal::say(nibble_measure::soak_table(&parts))?;
        }
        return nibble_measure::soak_verdict(&parts);
    }
    if let Some(path) = &args.html {
        output::check(path, args.model.as_deref())?;
    }
    let bench = Bench {
        open: &open,
        options: args.device.options(),
        lists: lists(args, open()?.config.context),
        repeats: args.repeats,
        warmup: args.warmup,
        cold: args.cold,
        against: contenders(args)?,
        against_limit: Duration::from_secs(args.against_limit),
        command: command(),
        cache: cache::dir().map(|dir| dir.join("hashes.json")),
    };
    let bar = terminal::bar(0, "measuring");
    let mut progress = |now: Progress| {
        if bar.length() != Some(now.total as u64) {
            bar.set_length(now.total as u64);
            bar.reset_eta();
        }
        bar.set_position(now.done as u64);
        bar.set_message(now.what);
    };
    let report = bench.run(&mut progress);
    bar.finish_and_clear();
    let report = report?;
    // First what needs no file: a full disk must not cost what was measured.
    if args.json {
        let json = serde_json::to_string(&report).map_err(|e| Error::new(Kind::Run, e.to_string()))?;
        terminal::say(format_args!("{json}\n"))?;
    } else if args.csv {
        terminal::say(report.to_csv())?;
    } else {
        terminal::say(report.to_text())?;
    }
    if let Some(path) = &args.html {
        let io = |e| output::unwritable(path, e);
        nibble_api::replace(path, io, |out| out.write_all(report.to_html().as_bytes()).map_err(io))?;
        terminal::note(format_args!("{} shows it in a browser", path.display()));
    }
    if !args.against.is_empty() && report.rows.iter().all(|row| row.against.is_empty()) {
        let what = "no row could be compared with any other program; the notes above say why";
        return Err(Error::new(Kind::Run, what));
    }
    Ok(())
}

/// The limits of the device alone.
fn limits(args: &BenchArgs, model: &Model) -> Result<(), Error> {
    let backend = model.backend(&args.device.options())?;
    let device = backend.describe();
    let limits = DeviceLimits::measure(backend.as_ref())?;
    if args.json {
        return terminal::say(format_args!(
            "{}\n",
            serde_json::json!({ "device": device, "limits": limits })
        ));
    }
    let limits = limits.map_or("not measured on this device".into(), |limits| limits.to_text());
    terminal::say(format_args!("{device}\n{limits}\n"))
}

/// Tokens of a take in each mode, if nobody says how many.
const MODE_TOKENS: usize = 128;

/// The ways in which work can be handed to the device.
fn gpu_modes(args: &BenchArgs, model: &Model) -> Result<(), Error> {
    let options = args.device.options();
    let counts = args.generate.clone().unwrap_or(vec![MODE_TOKENS.min(model.config.context)]);
    for tokens in counts.into_iter().filter(|&n| n > 0) {
        let rows = nibble_measure::modes(model, &options, tokens, args.repeats.max(1))?;
        if args.json {
            let line = serde_json::json!({ "command": command(), "tokens": tokens, "modes": rows });
            terminal::say(format_args!("{line}\n"))?;
        } else {
            terminal::say(format_args!("{tokens} tokens\n{}", nibble_measure::modes_table(&rows)))?;
        }
    }
    Ok(())
}

/// The rows that were asked for. The built-in model is small and shows all there is: two depths, two batches.
fn lists(args: &BenchArgs, context: usize) -> Lists {
    let builtin = |list: Vec<usize>| args.model.is_none().then_some(list);
    Lists {
        prompts: args.prompt.clone(),
        generates: args.generate.clone(),
        batches: args.batch.clone().or_else(|| builtin(vec![1, 4])),
        depths: args.depth.clone().or_else(|| builtin(vec![0, context / 4])),
    }
}

/// `NAME` or `NAME=PATH` of each, and the flags that name it.
fn contenders(args: &BenchArgs) -> Result<Vec<Contender>, Error> {
    let known = || PEERS.iter().map(|peer| peer.name()).collect::<Vec<_>>().join(", ");
    let find = |name: &str| {
        peer(name).ok_or_else(|| {
            Error::new(Kind::Usage, format!("against: expected one of {}, found `{name}`", known()))
        })
    };
    let mut all = vec![];
    for text in &args.against {
        let (name, given) = match text.split_once('=') {
            Some((name, path)) => (name, Some(PathBuf::from(path))),
            None => (text.as_str(), None),
        };
        all.push(Contender { peer: find(name)?, given, flags: vec![] });
    }
    for text in &args.against_flags {
        let (name, flags) = text.split_once('=').unwrap_or((text, ""));
        let peer = find(name)?;
        let mut meant = all.iter_mut().filter(|c| c.peer.name() == peer.name()).peekable();
        if meant.peek().is_none() {
            let what =
                format!("against-flags: expected one of --against, found `{name}`, which is not in it");
            return Err(Error::new(Kind::Usage, what));
        }
        meant.for_each(|contender| contender.flags.extend(flags.split_whitespace().map(str::to_owned)));
    }
    Ok(all)
}

/// The words of the command, those with spaces in quotes.
fn command() -> String {
    let words = std::env::args().enumerate().map(|(i, word)| match i {
        0 => Path::new(&word).file_name().unwrap_or_default().to_string_lossy().into_owned(),
        _ if word.is_empty() || word.contains(char::is_whitespace) => format!("'{word}'"),
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}
