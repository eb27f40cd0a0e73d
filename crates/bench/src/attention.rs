//! `cpu/attention/KV/TxP`: T rows at positions from P on, whose keys and values come from memory.
//!
//! A graph of nothing but attention layers, in the shape of a model of a billion parameters, through the contract of
//! devices. The limit of one row is reading, that of many is arithmetic.

use super::Options;
use super::report::Report;
use super::timing::seconds;
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_cpu::kernels::{Isa, limits};
use nibble_backend_cpu::{Cpu, CpuOptions};
use nibble_graph::{Attention, Error, Graph, KvLayer, Value, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::uniform;
use std::io::{self, Write};
use std::time::Instant;

/// Heads of queries.
const HEADS: usize = 32;

/// What every layer keeps.
const LAYER: KvLayer = KvLayer { kv_heads: 8, key_dim: 64, value_dim: 64 };

/// Token ids.
const VOCAB: usize = 32;

struct Case {
    kv: KvType,
    rows: usize,
    depth: usize,
    layers: usize,
}

/// See [`crate::run`].
pub fn run(options: &Options, isas: &[Isa], out: &mut impl Write) -> io::Result<usize> {
    let shapes: &[(usize, usize, usize)] = if options.tiny {
        &[(1, 1100, 1), (3, 70, 1)]
    } else {
        &[(1, 8192, 16), (4, 8192, 8), (64, 2048, 2)]
    };
    let mut count = 0;
    for (name, kv) in KvType::ALL {
        for &(rows, depth, layers) in shapes {
            let path = format!("cpu/attention/{name}/{rows}x{depth}");
            if !path.contains(&options.filter) {
                continue;
            }
            let case = Case { kv, rows, depth, layers };
            for (&isa, &threads) in isas.iter().flat_map(|isa| options.threads.iter().map(move |t| (isa, t)))
            {
                let line = case.measure(options, isa, threads).map_err(io::Error::other)?;
                writeln!(out, "{path:<36} {isa} {threads} threads  {line}")?;
                out.flush()?;
                count += 1;
            }
        }
    }
    Ok(count)
}

fn rows_of(g: &mut Graph, name: &str, width: usize) -> Result<Value, Error> {
    let bytes: Vec<u8> = uniform(width as u64, VOCAB * width).iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = Shape::new(&[VOCAB, width]).expect("a small shape");
    let data = Encoded::new(name, shape, codec("f32"), bytes.into()).expect("as many bytes as numbers");
    let tokens = g.tokens()?;
    g.embed(tokens, Weight::new(name, data))
}

fn graph(layers: usize) -> Result<Graph, Error> {
    let mut g = Graph::default();
    let q = rows_of(&mut g, "q", HEADS * LAYER.key_dim)?;
    let k = rows_of(&mut g, "key", LAYER.kv_heads * LAYER.key_dim)?;
    let v = rows_of(&mut g, "value", LAYER.kv_heads * LAYER.value_dim)?;
    for layer in 0..layers {
        let cache = g.add_cache(LAYER);
        let a = Attention { cache, heads: HEADS, scale: 0.1, window: None, soft_cap: None };
        let y = g.attention(q, k, v, a)?;
        if layer + 1 == layers {
            g.output(y);
        }
    }
    Ok(g)
}

impl Case {
    fn measure(&self, options: &Options, isa: Isa, threads: usize) -> Result<String, String> {
        let context = self.depth + self.rows;
        let limits = Limits {
            rows: self.rows.max(256),
            wanted: 1,
            sequences: 1,
            context,
            pages: context.div_ceil(PAGE_LEN),
            state_slots: 1,
            kv: self.kv,
            activations: Activations::Auto,
            check_finite: false,
        };
        let cpu = Cpu::new(CpuOptions { threads: Some(threads), isa: Some(isa), ..CpuOptions::default() });
        let graph = graph(self.layers).map_err(|e| e.to_string())?;
        let mut plan = cpu.compile(&graph, &limits).map_err(|e| e.to_string())?;
        let pages: Vec<u32> = (0..limits.pages as u32).collect();
        let step = |plan: &mut dyn Plan, at: usize, rows: usize| -> Result<(), String> {
            let tokens: Vec<u32> = (0..rows).map(|i| ((at + i) * 7 % VOCAB) as u32).collect();
            let positions: Vec<u32> = (at as u32..).take(rows).collect();
            let sequence = vec![0; rows];
            let sequences = [Sequence { pages: &pages, state: 0, prompt_len: 0 }];
            let wanted = [rows as u32 - 1];
            let step = Step {
                tokens: &tokens,
                positions: &positions,
                sequence: &sequence,
                sequences: &sequences,
                wanted: &wanted,
            };
            plan.run(&step).map_err(|e| e.to_string())
        };
        // Some pages hold numbers, the others zeros: time does not depend on them.
        step(&mut *plan, 0, 256.min(self.depth))?;
        step(&mut *plan, self.depth, self.rows)?;
        let mut y = vec![0.0; HEADS * LAYER.value_dim];
        plan.read(0, 0, &mut y).map_err(|e| e.to_string())?;
        assert!(y.iter().all(|y| y.is_finite()));

        let row_bytes = self.kv.row_bytes(LAYER.key_dim) + self.kv.row_bytes(LAYER.value_dim);
        let bytes = self.layers * LAYER.kv_heads * row_bytes * self.depth;
        let products = self.layers * HEADS * (LAYER.key_dim + LAYER.value_dim) * self.depth * self.rows;
        let memory = vec![1u8; bytes];
        let part = bytes / threads;
        let report = Report::measure(
            options.tiny,
            |_| {
                let start = Instant::now();
                step(&mut *plan, self.depth, self.rows).expect("the same step ran before");
                start.elapsed().as_secs_f64()
            },
            |_| seconds(threads, |thread| limits::read(isa, &memory[thread * part..(thread + 1) * part])),
            |rounds| {
                let made = limits::multiply_floats(isa, 1)?;
                let time = seconds(threads, |_| _ = limits::multiply_floats(isa, rounds));
                Some((made * rounds * threads) as f64 / time)
            },
        );
        let read = (self.rows == 1).then_some(bytes);
        Ok(report.line(read, products))
    }
}
