//! What goes to stderr: errors, progress, summaries. Colours and bars only where a person looks.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nibble_api::{Error, Kind, Remedy};
use nibble_measure::text;
pub use nibble_measure::text::size;
use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    time::Duration,
};

fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::io::stderr().is_terminal()
}

fn paint(code: &str, text: impl Display) -> String {
    if colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

/// A line on stderr. A closed or full stderr is no reason to stop: there is nowhere left to say so.
fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// One sentence, after the word that says what it is.
pub fn error(message: impl Display) {
    line(format_args!("{} {message}", paint("1;31", "error:")));
}

/// A failure, with what to do about it in the words of the command line.
pub fn failure(e: &Error) {
    match e.remedy {
        Some(remedy) => error(format_args!("{}; {}", e.message(), advice(remedy))),
        None => error(e.message()),
    }
}

/// What to type.
fn advice(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Context => "shorten it or raise --ctx",
        Remedy::Memory => "lower --ctx, choose --kv q8_0, or raise --memory-budget",
        Remedy::CheckFinite => "--check-finite tells which op it comes from",
        Remedy::Ids => "give the prompt as ids with --tokens",
        Remedy::PlainText => "continue plain text with `nibble run --raw`",
        Remedy::Replace => "choose another name, or --force to replace it",
    }
}

/// Something that the user should know.
pub fn warn(message: impl Display) {
    line(format_args!("{} {message}", paint("1;33", "warning:")));
}

/// A line that can be overlooked.
pub fn note(message: impl Display) {
    line(paint("2", message));
}

/// What was asked for, to stdout at once.
///
/// # Errors
/// [`Kind::Run`] if stdout is closed or full.
pub fn say(text: impl Display) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::caused(Kind::Run, format!("standard output: cannot be written: {e}"), e))
}

/// Whether an error says only that nobody reads the output any more, as `head` does when it has its lines.
pub fn reader_left(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// A bar that is drawn on terminals alone.
pub fn bar(len: u64, what: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}").expect("a fixed template");
    ProgressBar::with_draw_target(Some(len), target)
        .with_style(style.progress_chars("=> "))
        .with_message(what.to_owned())
}

/// A spinner that is drawn on terminals alone.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = bar(0, what);
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A duration as people read it: seconds from one second on, else ms or us.
pub fn time(duration: Duration) -> String {
    text::time(duration.as_secs_f64())
}
