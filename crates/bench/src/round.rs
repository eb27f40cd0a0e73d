//! `cpu/round/TxK`: T rows of K numbers rounded to eight bits, as every integer product wants them.

use super::Options;
use super::report::Report;
use super::timing::seconds;
use nibble_backend_cpu::kernels::{Activations, Forms, Isa, limits};
use nibble_testkit::uniform;
use std::io::{self, Write};

/// See [`crate::run`].
pub fn run(options: &Options, isas: &[Isa], out: &mut impl Write) -> io::Result<usize> {
    let (rows, row_len) = if options.tiny { (2, 96) } else { (512, 8192) };
    let path = format!("cpu/round/{rows}x{row_len}");
    if !path.contains(&options.filter) {
        return Ok(0);
    }
    let numbers = uniform(1, rows * row_len);
    let mut codes = Activations::new(rows, row_len, Forms::CODES);
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    for &isa in isas {
        let report = Report::measure(
            options.tiny,
            |_| {
                let start = std::time::Instant::now();
                for (row, numbers) in numbers.chunks_exact(row_len).enumerate() {
                    codes.fill(isa, row, numbers);
                }
                start.elapsed().as_secs_f64()
            },
            |_| seconds(1, |_| limits::read(isa, &bytes)),
            |_| None,
        );
        writeln!(out, "{path:<36} {isa} 1 threads  {}", report.line(Some(bytes.len()), numbers.len()))?;
        out.flush()?;
    }
    Ok(isas.len())
}
