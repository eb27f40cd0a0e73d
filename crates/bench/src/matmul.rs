//! `cpu/matmul/CODEC/TxNxK`: T rows of activations with a matrix of N rows of K numbers.

use super::Options;
use super::report::Report;
use super::timing::seconds;
use memmap2::MmapMut;
use nibble_backend_cpu::kernels::{
    Activations, Input, Isa, Kernel, Matrix, Output, STRIP_ROWS, Scratch, limits,
};
use nibble_quant::{CODECS, Codec, Group, Kind, Unpacked, families};
use nibble_testkit::{Rng, uniform};
use std::io::{self, Write};
use std::sync::Mutex;

/// Bytes of weights that a one-row benchmark walks through: more than any cache holds.
const STREAM_BYTES: usize = 256 << 20;

/// Rows of activations up to which a benchmark is one of reading.
const FEW: usize = 8;

struct Shape {
    tokens: usize,
    rows: usize,
    row_len: usize,
}

/// See [`crate::run`].
pub fn run(options: &Options, isas: &[Isa], out: &mut impl Write) -> io::Result<usize> {
    let shapes: &[(usize, usize, usize)] = if options.tiny {
        &[(1, 8, 512), (16, 20, 256)]
    } else {
        &[
            (1, 8192, 2048),
            (2, 8192, 2048),
            (4, 8192, 2048),
            (8, 2048, 2048),
            (16, 2048, 2048),
            (64, 256, 2048),
            (512, 64, 2048),
            (512, 64, 8192),
        ]
    };
    let mut count = 0;
    for codec in CODECS.iter().copied().chain(families()) {
        for &(tokens, rows, row_len) in shapes {
            let path = format!("cpu/matmul/{}/{tokens}x{rows}x{row_len}", codec.spec().name);
            if path.contains(&options.filter) {
                for (&isa, &threads) in
                    isas.iter().flat_map(|isa| options.threads.iter().map(move |threads| (isa, threads)))
                {
                    let line = one(options, isa, codec, &Shape { tokens, rows, row_len }, threads);
                    writeln!(out, "{path:<36} {isa} {threads} threads  {line}")?;
                    out.flush()?;
                    count += 1;
                }
            }
        }
    }
    Ok(count)
}

fn one(options: &Options, isa: Isa, codec: &'static dyn Codec, shape: &Shape, threads: usize) -> String {
    let kernel = Kernel::pick(isa, codec, false);
    let shape = &Shape { rows: shape.rows.next_multiple_of(codec.rows()), ..*shape };
    let matrix_bytes = shape.rows * shape.row_len / codec.spec().block_len * codec.spec().block_bytes;
    let copies = if options.tiny || shape.tokens > FEW { 1 } else { STREAM_BYTES.div_ceil(matrix_bytes) };
    let weights = weights(codec, shape.rows * shape.row_len, copies);
    // As a plan keeps them; rates count the file's bytes.
    let kept_bytes = kernel.strips_len(shape.rows, shape.row_len).unwrap_or(matrix_bytes);
    let strips = strips(&kernel, shape, &weights[..matrix_bytes], copies);
    let weights = strips.as_ref().unwrap_or(&weights);
    let mut x = Activations::new(shape.tokens, shape.row_len, kernel.forms());
    for t in 0..shape.tokens {
        x.fill(isa, t, &uniform(t as u64, shape.row_len));
    }
    let len = shape.tokens * shape.rows;
    let cut = |thread: usize| (thread * shape.rows / threads).next_multiple_of(STRIP_ROWS).min(shape.rows);
    let mut outputs: Vec<Vec<f32>> = (0..threads).map(|_| vec![0.0; len]).collect();
    let mut outputs: Vec<_> =
        outputs.iter_mut().map(|y| Mutex::new((y, Scratch::new(shape.row_len)))).collect();
    let once = |copy: usize| {
        let bytes = &weights[copy * kept_bytes..(copy + 1) * kept_bytes];
        seconds(threads, |thread| {
            let (y, scratch) = &mut *outputs[thread].lock().expect("one thread each");
            let matrix = Matrix { bytes, rows: shape.rows, row_len: shape.row_len };
            let input = Input::rows(&x, 0..shape.tokens);
            kernel.run(matrix, cut(thread)..cut(thread + 1), input, Output::new(y, shape.rows), scratch);
        })
    };
    let read = |copy: usize| {
        let bytes = &weights[copy * kept_bytes..(copy + 1) * kept_bytes];
        let part = bytes.len() / threads;
        seconds(threads, |thread| limits::read(isa, &bytes[thread * part..(thread + 1) * part]))
    };
    let report = Report::measure(
        options.tiny,
        |turn| once(turn % copies),
        |turn| read((turn + copies / 2) % copies),
        |rounds| {
            let made = limits::multiply(isa, 1)?;
            let time = seconds(threads, |_| _ = limits::multiply(isa, rounds));
            Some((made * rounds * threads) as f64 / time)
        },
    );
    assert!(outputs.iter_mut().all(|y| y.get_mut().expect("idle").0.iter().all(|y| y.is_finite())));
    let products = shape.tokens * shape.rows * shape.row_len;
    report.line((shape.tokens <= FEW).then_some(matrix_bytes), products)
}

/// Copies of a matrix by strips, if the kernel reads those.
fn strips(kernel: &Kernel, shape: &Shape, file: &[u8], copies: usize) -> Option<MmapMut> {
    let len = kernel.strips_len(shape.rows, shape.row_len)?;
    let mut all = room(len * copies);
    let (first, rest) = all.split_at_mut(len);
    let file = Matrix { bytes: file, rows: shape.rows, row_len: shape.row_len };
    let strip = len / shape.rows.div_ceil(STRIP_ROWS);
    first.chunks_exact_mut(strip).enumerate().for_each(|(i, to)| kernel.write_strip(file, i, to));
    rest.chunks_exact_mut(len).for_each(|copy| copy.copy_from_slice(first));
    Some(all)
}

/// Memory in huge pages, like those of a mapped file.
fn room(bytes: usize) -> MmapMut {
    let all = MmapMut::map_anon(bytes).expect("memory for the weights");
    #[cfg(target_os = "linux")]
    let _ = all.advise(memmap2::Advice::HugePage);
    all
}

/// Random blocks with numbers, scales and offsets of a reasonable size, the same in each copy. (Products with
/// scales that are nearly 0 are subnormal, which takes some processors a hundred times as long.)
fn weights(codec: &dyn Codec, len: usize, copies: usize) -> MmapMut {
    let spec = codec.spec();
    let mut rng = Rng::new(1);
    let (mut decoded, mut codes) = (vec![0.0; spec.block_len], vec![0; spec.block_len]);
    let group_len = if codec.kind() == Kind::Group16 { 16 } else { 32 };
    let mut groups = vec![Group::default(); spec.block_len.div_ceil(group_len)];
    let mut few = Vec::new();
    while few.len() < 64 * spec.block_bytes {
        let block: Vec<u8> = (0..spec.block_bytes).map(|_| rng.bits() as u8).collect();
        codec.decode(&block, &mut decoded);
        let reasonable = |x: f32| x == 0.0 || (1e-7..1e4).contains(&x.abs());
        let sides = if codec.kind() == Kind::Float {
            true
        } else {
            groups.fill(Group::default());
            codec.unpack(&block, &mut Unpacked { codes: &mut codes, groups: &mut groups });
            groups.iter().all(|group| reasonable(group.scale) && reasonable(group.offset))
        };
        if sides && decoded.iter().all(|x| x.abs() < 1e4) {
            few.extend(block);
        }
    }
    let bytes = len / spec.block_len * spec.block_bytes;
    let mut all = room(bytes * copies);
    for copy in all.chunks_exact_mut(bytes) {
        copy.iter_mut().zip(few.iter().cycle()).for_each(|(to, from)| *to = *from);
    }
    all
}
