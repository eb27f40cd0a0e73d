//! `cargo run --release -p nibble-bench -- [FILTER] [--tiny] [--isa NAME] [--threads N]`

use nibble_bench::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options { filter: String::new(), tiny: false, threads: vec![1, all], isa: None };
    options.threads.dedup();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tiny" => options.tiny = true,
            "--isa" => options.isa = args.next(),
            "--threads" => options.threads = args.next().iter().filter_map(|n| n.parse().ok()).collect(),
            _ => options.filter = arg,
        }
    }
    match run(&options, &mut std::io::stdout()) {
        Ok(1..) => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("no benchmark's path contains `{}`", options.filter);
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
