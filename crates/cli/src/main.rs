//! The `nibble` command: the only crate that reads arguments and the environment.
#![forbid(unsafe_code)]
// They panic when the other end is closed; `terminal` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod cache;
mod chat;
mod devices;
mod generate;
mod imatrix;
mod inspect;
mod logits;
mod output;
mod parity;
mod perplexity;
mod quantize;
mod run;
mod terminal;
mod tokenize;
mod trace;

use args::{Cli, Command};
use clap::Parser;
use nibble_api::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Parity(args) => parity::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Imatrix(args) => imatrix::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Devices => devices::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if terminal::reader_left(&error) => ExitCode::from(READER_LEFT),
        Err(error) => {
            terminal::failure(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

/// What a shell reports of a program that writes to a closed pipe: 128 and the number of the signal that ends it, SIGPIPE.
/// This one ignores the signal, so as to leave its files in order.
const READER_LEFT: u8 = 128 + 13;

/// 2 usage, 3 cannot be loaded, 4 does not fit, 5 failed while running.
fn exit_code(error: &Error) -> u8 {
    error.kind as u8
}
