//! Keys and values in blocks: rounded when they are written, by the rules of their codecs, as on the CPU.
//!
//! A word holds four codes (q8_0), or eight (q4_0: the first four in the low halves of its bytes, the others in the high
//! ones). Behind the codes of a head's 64 positions are its scales, `[pairs of blocks][64 positions]`, two halves in a word.
//! Heads of q4_0 are turned by a Hadamard transform first, and so are queries; what attention yields is turned back.

use super::kv::{Bank, IN_HALF, PAGE, Turn, declare, scales, turned};
use crate::shader::{Shader, Source};
use nibble_backend::KvType;
use nibble_graph::KvLayer;

/// Numbers under one scale.
pub const BLOCK: usize = 32;

/// Invocations for a head.
const THREADS: u32 = 64;

/// WGSL that turns the `dim` numbers of the array `name`, by all of `threads` invocations: in chunks, each the longest power of
/// two that fits. Numbers must be there for all, and are afterwards.
pub fn rotate(name: &str, dim: usize, threads: u32) -> String {
    let mut text = String::new();
    let mut start = 0;
    while start < dim {
        let len = 1usize << (dim - start).ilog2();
        let mut half = 1;
        while half < len {
            text += &format!(
                "for (var i = local; i < {}u; i += {threads}u) {{
let at = {start}u + i / {half}u * {}u + i % {half}u;
let a = {name}[at];
let b = {name}[at + {half}u];
{name}[at] = a + b;
{name}[at + {half}u] = a - b;
}}
workgroupBarrier();\n",
                len / 2,
                2 * half
            );
            half *= 2;
        }
        let scale = (len as f32).sqrt().recip();
        text += &format!(
            "for (var i = local; i < {len}u; i += {threads}u) {{ {name}[{start}u + i] *= {scale:?}; }}\n"
        );
        start += len;
    }
    text + "workgroupBarrier();\n"
}

/// Turns each head of rows back. Bindings: y (`[rows, heads, dim]`). Grid: heads, rows.
pub fn unrotate(heads: usize, dim: usize) -> Shader {
    let mut s = Source::new("unrotate", THREADS);
    s.write("y", "f32");
    s.shared("x", "f32", dim);
    s.build(&format!(
        "let base = (group.y * {heads}u + group.x) * {dim}u;
for (var i = local; i < {dim}u; i += {THREADS}u) {{ x[i] = y[base + i]; }}
workgroupBarrier();
{}for (var i = local; i < {dim}u; i += {THREADS}u) {{ y[base + i] = x[i]; }}",
        rotate("x", dim, THREADS)
    ))
}

/// Rounds the rows of a step into their pages. Bindings: those of [`super::kv::write`]; q and turned q are there too if it
/// [`Bank::rotates`] without `turn`. Grid: heads of keys, of values, then of queries if they are there; rows.
pub fn write(bank: &Bank, turn: Option<&Turn>, heads: usize) -> Shader {
    let KvLayer { kv_heads, key_dim, value_dim } = bank.layer;
    let mut s = Source::new("kv_write_blocks", THREADS);
    let prepare = declare(&mut s, turn, ["u32"; 2]);
    let queries = turn.is_some() || bank.rotates();
    if queries {
        s.read("q", "f32");
        s.write("turned", "f32");
    }
    let number = |s: &mut Source, name: &str, turn: Option<&Turn>| match turn {
        Some(turn) => s.item(&turned(name, turn)),
        None => s.item(&format!("fn turned_{name}(base: u32, d: u32) -> f32 {{ return {name}[base + d]; }}")),
    };
    number(&mut s, "k", turn);
    number(&mut s, "v", None);
    if queries {
        number(&mut s, "q", turn);
    }
    let padded = bank.padded();
    s.shared("x", "f32", padded[0].max(padded[1]));
    let (step, code) = match bank.kv {
        KvType::Q8_0 => (
            "abs(far) / 127.0",
            // Halves go away from zero.
            "fn code(x: f32) -> u32 {
let whole = trunc(x);
return u32(i32(whole + select(0.0, sign(x), abs(x - whole) >= 0.5))) & 0xffu;
}",
        ),
        _ => ("far / -8.0", "fn code(x: f32) -> u32 { return u32(min(x + 8.5, 15.0)); }"),
    };
    s.item(code);
    s.item(IN_HALF);
    s.item(&format!(
        "fn scale_of(block: u32) -> f32 {{
var far = 0.0;
for (var i = block * {BLOCK}u; i < block * {BLOCK}u + {BLOCK}u; i += 1u) {{
if (bitcast<u32>(x[i]) & 0x7fffffffu) > (bitcast<u32>(far) & 0x7fffffffu) {{ far = x[i]; }}
}}
return {step};
}}"
    ));
    let [scale_q, scale_k] = scales(&mut s, turn, key_dim, THREADS);
    let load = |name: &str, count: usize, dim: usize, padded: usize, head: &str| {
        let scale = match name {
            "q" => &scale_q,
            "k" => &scale_k,
            _ => "",
        };
        format!(
            "let base = (group.y * {count}u + {head}) * {dim}u;
{scale}for (var i = local; i < {padded}u; i += {THREADS}u) {{
var number = 0.0;
if i < {dim}u {{ number = turned_{name}(base, i); }}
x[i] = number;
}}
workgroupBarrier();\n{}",
            if bank.rotates() { rotate("x", dim, THREADS) } else { String::new() }
        )
    };
    let mut body = format!("let place = step[group.y];\n{prepare}");
    if queries {
        body += &format!(
            "if group.x >= {both}u {{
{load}for (var i = local; i < {key_dim}u; i += {THREADS}u) {{ turned[base + i] = x[i]; }}
return;
}}\n",
            both = 2 * kv_heads,
            load = load("q", heads, key_dim, key_dim, &format!("group.x - {}u", 2 * kv_heads)),
        );
    }
    body += &format!(
        "let page = pages[sequences[place.z * 2u].x + place.y / {PAGE}u];
let position = place.y % {PAGE}u;\n"
    );
    for (side, name) in ["k", "v"].into_iter().enumerate() {
        let (dim, padded, words) = ([key_dim, value_dim][side], padded[side], bank.row_words()[side]);
        let head = ["group.x".to_string(), format!("group.x - {kv_heads}u")][side].clone();
        let array = ["keys", "values"][side];
        let unit = bank.unit();
        let at = match side {
            0 => format!("(w / {unit}u * {PAGE}u + position) * {unit}u + w % {unit}u"),
            _ => format!("position * {words}u + w"),
        };
        let blocks = (padded / BLOCK) as u32;
        let second =
            format!("select(0.0, scale_of(min(2u * j + 1u, {blocks}u - 1u)), 2u * j + 1u < {blocks}u)");
        let per_word = bank.per_word as u32;
        let mut word = vec![];
        for i in 0..per_word {
            let shift = if per_word == 4 { 8 * i } else { 8 * (i % 4) + i / 4 * 4 };
            word.push(format!("(code(x[w * {per_word}u + {i}u] * inverse) << {shift}u)"));
        }
        body += if side == 0 { "if group.x < " } else { "} else {\n" };
        if side == 0 {
            body += &format!("{kv_heads}u {{\n");
        }
        body += &format!(
            "{load}let to = page * {page_words}u + ({head}) * {head_words}u;
for (var w = local; w < {words}u; w += {THREADS}u) {{
let d = scale_of(w / {per_block}u);
var inverse = 0.0;
if d != 0.0 {{ inverse = 1.0 / d; }}
{array}[to + {at}] = {word};
}}
for (var j = local; j < {scales}u; j += {THREADS}u) {{
let both = vec2<f32>(scale_of(2u * j), {second});
{array}[to + {codes}u + j * {PAGE}u + position] = pack2x16float(vec2<f32>(in_half(both.x), in_half(both.y)));
}}\n",
            load = load(name, kv_heads, dim, padded, &head),
            page_words = bank.page_words()[side],
            head_words = bank.head_words()[side],
            per_block = BLOCK as u32 / per_word,
            word = word.join(" | "),
            scales = bank.scale_words()[side],
            codes = words * PAGE,
        );
    }
    s.build(&(body + "}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        GpuOptions, common,
        plan::{bind, map},
    };
    use nibble_testkit::uniform;

    const KV_HEADS: usize = 2;
    const POSITION: usize = 67; // of the second page

    /// The pages that one row of keys and values leaves.
    fn written(bank: &Bank, k: &[f32], v: &[f32]) -> Option<[Vec<u32>; 2]> {
        let gpu = common::gpu(GpuOptions::default())?;
        let device = &gpu.device;
        let shader = write(bank, None, 1);
        let pipeline = device.pipeline(&shader).unwrap();
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let pages = bank.page_words().map(|words| vec![0; words as usize]);
        let mut inputs: Vec<Vec<u32>> =
            vec![vec![0, POSITION as u32, 0, 0], vec![0; 8], vec![5, 0], bits(k), bits(v)];
        inputs.extend(pages.clone());
        if bank.rotates() {
            inputs.extend([bits(&k[..bank.layer.key_dim]), vec![0; bank.layer.key_dim]]);
        }
        let buffers: Vec<_> = inputs
            .iter()
            .map(|words| {
                let buffer = device.buffer("a test", words.len() as u64 * 4).unwrap();
                device.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
                buffer
            })
            .collect();
        let bindings = bind(device, &pipeline, buffers.iter());
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let mut encoder = device.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &bindings, &[]);
            pass.set_immediates(0, &1u32.to_ne_bytes());
            pass.dispatch_workgroups(2 * KV_HEADS as u32, 1, 1);
        }
        let staging = [5, 6].map(|i: usize| {
            let bytes = inputs[i].len() as u64 * 4;
            let staging = device.buffer_for("a test", bytes, usage).unwrap();
            encoder.copy_buffer_to_buffer(&buffers[i], 0, &staging, 0, bytes);
            staging
        });
        device.queue.submit([encoder.finish()]);
        let mut found = pages;
        for (staging, found) in staging.iter().zip(&mut found) {
            map(device, staging, found).unwrap();
        }
        Some(found)
    }

    /// As [`rotate`], here.
    fn turned(x: &mut [f32]) {
        let len = 1 << x.len().ilog2();
        let (chunk, rest) = x.split_at_mut(len);
        let before = chunk.to_vec();
        for (i, x) in chunk.iter_mut().enumerate() {
            let sign = |j: usize| if (i & j).count_ones() % 2 == 1 { -1.0 } else { 1.0 };
            let sum: f64 = before.iter().enumerate().map(|(j, &x)| sign(j) * f64::from(x)).sum();
            *x = (sum / (len as f64).sqrt()) as f32;
        }
        if !rest.is_empty() {
            turned(rest);
        }
    }

    #[test]
    fn heads_are_rounded_as_their_codec_rounds() {
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        for (kv, name) in [(KvType::Q8_0, "q8_0"), (KvType::Q4_0, "q4_0")] {
            let codec = nibble_quant::codec(name);
            for (key_dim, value_dim) in [(64, 128), (16, 96), (80, 32), (256, 48)] {
                let bank = Bank::new(KvLayer { kv_heads: KV_HEADS, key_dim, value_dim }, kv);
                // Numbers on a grid: halves occur, and sums of them are exact.
                let row = |seed: u64, dim: usize| -> Vec<f32> {
                    uniform(seed, KV_HEADS * dim).iter().map(|x| (x * 256.0).round() / 256.0).collect()
                };
                let (k, v) = (row(1, key_dim), row(2, value_dim));
                let Some(pages) = written(&bank, &k, &v) else { return };
                for (side, (row, dim)) in [(k, key_dim), (v, value_dim)].into_iter().enumerate() {
                    let padded = bank.padded()[side];
                    let (row_words, head_words) = (bank.row_words()[side] as usize, bank.head_words()[side]);
                    for (head, numbers) in row.chunks_exact(dim).enumerate() {
                        let mut numbers = numbers.to_vec();
                        if bank.rotates() {
                            turned(&mut numbers);
                        }
                        numbers.resize(padded, 0.0);
                        let spec = codec.spec();
                        let mut encoded = vec![0; padded / BLOCK * spec.block_bytes];
                        codec.encoder().unwrap().encode_row(&numbers, None, &mut encoded);
                        let page = &pages[side][head * head_words as usize..];
                        let (unit, position) = (bank.unit() as usize, POSITION % 64);
                        let word = |w: usize| match side {
                            0 => page[(w / unit * 64 + position) * unit + w % unit],
                            _ => page[position * row_words + w],
                        };
                        let words: Vec<u32> = (0..row_words).map(word).collect();
                        let mut off = 0;
                        for (block, expected) in encoded.chunks_exact(spec.block_bytes).enumerate() {
                            let scale = page[64 * row_words + block / 2 * 64 + position];
                            let scale = (scale >> (16 * (block % 2))) as u16;
                            assert_eq!(scale.to_le_bytes(), expected[..2], "{name} {dim} block {block}");
                            let found: Vec<u8> = match kv {
                                KvType::Q8_0 => bytes(&words[8 * block..8 * block + 8]),
                                _ => {
                                    let low = |w: u32| w.to_le_bytes().map(|b| b & 15);
                                    let codes: Vec<u8> = words[4 * block..4 * block + 4]
                                        .iter()
                                        .flat_map(|&w| [low(w), low(w >> 4)].concat())
                                        .collect();
                                    (0..16).map(|i| codes[i] | codes[i + 16] << 4).collect()
                                }
                            };
                            off += found.iter().zip(&expected[2..]).filter(|(a, b)| a != b).count();
                        }
                        // Turning in one order of sums or another moves a number across an edge now and then.
                        let most = if bank.rotates() { padded / 32 } else { 0 };
                        assert!(off <= most, "{name} {dim}: {off}");
                    }
                }
            }
        }
    }
}
