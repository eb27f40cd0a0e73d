//! `nibble imatrix`: how much each column of a model's matrices matters.

use crate::{
    args::ImatrixArgs,
    generate::{interrupted, stoppable},
    output,
    run::open,
    terminal,
};
use nibble_api::{EncodeOptions, Error, Importance, Kind, Remedy};
use std::{ops::ControlFlow, time::Instant};

pub fn run(args: &ImatrixArgs) -> Result<(), Error> {
    output::check(&args.out, Some(&args.model))?;
    if args.out.exists() && !args.force {
        let what = format!("{}: exists already", args.out.display());
        return Err(Error::new(Kind::Usage, what).with(Remedy::Replace));
    }
    let started = Instant::now();
    let text = std::fs::read(&args.text)
        .map_err(|e| Error::new(Kind::Usage, format!("{}: cannot be read: {e}", args.text.display())))?;
    let model = open(Some(&args.model))?;
    let bar = terminal::bar(0, "chunks");
    let mut progress = |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = stoppable(|| {
        let encode = EncodeOptions { add_special: true, parse_special: false };
        let tokens = model.tokenizer()?.encode(&String::from_utf8_lossy(&text), encode);
        let chunks = args.chunks.map(|n| n as usize);
        Importance::measure(&model, &tokens, chunks, &args.device.options(), &mut progress)
    });
    bar.finish_and_clear();
    let found = found?;
    found.write(&args.out, &args.text.display().to_string())?;
    for name in found.unseen() {
        terminal::warn(format_args!("{name}: some experts had no token; a longer text may reach them"));
    }
    terminal::note(format_args!(
        "{}: {} matrices over {} chunks of {} tokens, in {}",
        args.out.display(),
        found.inputs.len(),
        found.chunks,
        found.chunk_len,
        terminal::time(started.elapsed()),
    ));
    Ok(())
}
