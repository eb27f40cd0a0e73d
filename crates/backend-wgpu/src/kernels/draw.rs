//! A token drawn from logits as the sampler draws it, and the next step's rows.
//!
//! Everything that decides is an order of floats or a sum of integers, so the token is the one that the host would draw from
//! the same logits (`nibble_sampler::Draw`). A cut keeps the likeliest tokens: it is found digit by digit of the logits' bits,
//! and among equal ones by their ids. Numbers of 64 bits are vectors, the lower half first.

use crate::shader::{Shader, Source};
use nibble_sampler::{Draw, EXP2, GOLDEN, LOG2_E};

/// Invocations for a row, in [`RUNS`] that read side by side.
const THREADS: u32 = 512;

/// Parts that ids are cut into, again and again, to find one.
const RUNS: u32 = 16;

/// Bits of the longest digit, which the first digits of logits have.
const DIGIT: u32 = 11;

/// Words of a draw, as [`draw`] reads it.
pub const WORDS: usize = 8;

/// A draw as the kernel reads it, for a row that is at `position` in the first step: what random numbers are mixed from
/// belongs to position 0 there.
pub fn words(draw: &Draw, position: u32) -> [u32; WORDS] {
    let random = draw.random.wrapping_sub(GOLDEN.wrapping_mul(u64::from(position)));
    let (below, inverse) = (draw.below.to_bits(), draw.inverse.to_bits());
    [draw.top_k, draw.top_p, below, inverse, random as u32, (random >> 32) as u32, 0, 0]
}

const ARITHMETIC: &str = "
fn upper(a: u32, b: u32) -> u32 {
let low = (a & 0xffffu) * (b & 0xffffu);
let one = (a & 0xffffu) * (b >> 16u);
let two = (a >> 16u) * (b & 0xffffu);
let middle = (low >> 16u) + (one & 0xffffu) + (two & 0xffffu);
return (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u) + (middle >> 16u);
}
fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
let low = a.x + b.x;
return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}
fn less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn minus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x)); }
fn times(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
return vec2<u32>(a.x * b.x, upper(a.x, b.x) + a.x * b.y + a.y * b.x);
}
// The upper half of a product.
fn upper_half(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
let middle = add(add(vec2<u32>(a.x * b.y, 0u), vec2<u32>(a.y * b.x, 0u)), vec2<u32>(upper(a.x, b.x), 0u));
let more = add(add(vec2<u32>(upper(a.x, b.y), 0u), vec2<u32>(upper(a.y, b.x), 0u)), vec2<u32>(middle.y, 0u));
return add(vec2<u32>(a.y * b.y, upper(a.y, b.y)), more);
}
// The sum that shares must exceed to be `p` / 2^32 of all.
fn part_of(a: vec2<u32>, p: u32) -> vec2<u32> {
let middle = add(vec2<u32>(upper(a.x, p), 0u), vec2<u32>(a.y * p, 0u));
let whole = vec2<u32>(middle.x, upper(a.y, p) + middle.y);
return minus(whole, vec2<u32>(u32(a.x * p == 0u), 0u));
}
fn shifted(a: vec2<u32>, by: u32) -> vec2<u32> {
if by >= 32u { return vec2<u32>(a.y >> min(by - 32u, 31u), 0u); }
return vec2<u32>((a.x >> by) | ((a.y << 1u) << (31u - by)), a.y >> by);
}
fn mixed(z: vec2<u32>) -> vec2<u32> {
let a = times(z ^ shifted(z, 30u), vec2<u32>(0x1ce4e5b9u, 0xbf58476du));
let b = times(a ^ shifted(a, 27u), vec2<u32>(0x133111ebu, 0x94d049bbu));
return b ^ shifted(b, 31u);
}";

/// `share(distance)`: as the sampler's.
fn share() -> String {
    let mut sum = format!("{}u", EXP2[EXP2.len() - 1]);
    for factor in EXP2.iter().rev().skip(1) {
        sum = format!("({factor}u - upper(f, {sum}))");
    }
    format!(
        "fn share(distance: f32) -> vec2<u32> {{
if !(distance < 32.0) {{ return vec2<u32>(0u); }}
let power = upper(u32(distance * {scale:?}) << 1u, {LOG2_E}u);
let f = power << 6u;
let m = 0x80000000u - upper(f, {sum});
return shifted(vec2<u32>(m << 9u, m >> 23u), power >> 26u);
}}",
        scale = (1u32 << 26) as f32,
    )
}

/// What a row's invocations know of it, and the two searches.
///
/// Logits are ordered by `place_of`: the likeliest has the lowest. What is kept lies before `cut`, or on it with an id up to
/// `cut_id`. `amount(kind, i)` is what token `i` counts for: 0 one, 1 its share, 2 what it weighs in the draw, for tokens that
/// are kept; 3 and 4 are 0 and 1 for tokens on the cut alone.
const SEARCH: &str = "
var<private> row: u32;
var<private> best: f32;
var<private> below: f32;
var<private> inverse: f32;
var<private> cut: u32;
var<private> cut_id: u32;
// Minus infinity forbids a token.
const LAST: u32 = 0xff7fffffu;
fn place_of(v: f32) -> u32 {
let bits = select(bitcast<u32>(v), 0u, v == 0.0);
return select(~bits & 0x7fffffffu, bits, bits >= 0x80000000u);
}
fn amount(kind: u32, i: u32) -> vec2<u32> {
let v = logits[row + i];
let place = place_of(v);
let on = place == cut;
let kept = select(place < cut || (on && i <= cut_id), on, kind > 2u);
let distance = best - v;
if !kept || (kind == 2u && distance > below) { return vec2<u32>(0u); }
if kind == 0u || kind == 3u { return vec2<u32>(1u, 0u); }
return share(select(distance, distance * inverse, kind == 2u));
}";

/// The two ways to the first of some sums with which all until there exceed a goal, and what is left of the goal before, for
/// sums that do exceed it. Every invocation gets the same.
///
/// `run_past(goal)` goes through `runs`, as `sum_runs(kind, first, part, stop)` leaves them: amounts of [`RUNS`] times `part`
/// ids from `first` on. `first_past(goal)` goes through `sums`, one of each invocation.
fn searches(s: &mut Source) {
    let per = THREADS / RUNS;
    s.shared("sums", "vec2<u32>", THREADS as usize);
    s.shared("runs", "vec2<u32>", RUNS as usize);
    s.item(&format!(
        "fn add_runs(local: u32) {{
workgroupBarrier();
if local < {RUNS}u {{
var sum = vec2<u32>(0u);
for (var i = 0u; i < {per}u; i += 1u) {{ sum = add(sum, sums[local * {per}u + i]); }}
runs[local] = sum;
}}
workgroupBarrier();
}}
fn run_past(goal: vec2<u32>) -> vec3<u32> {{
var left = goal;
var run = 0u;
while run < {RUNS}u - 1u && !less(left, runs[run]) {{ left = minus(left, runs[run]); run += 1u; }}
return vec3<u32>(run, left);
}}
fn first_past(goal: vec2<u32>, local: u32) -> vec3<u32> {{
add_runs(local);
let run = run_past(goal);
var left = run.yz;
var i = run.x * {per}u;
let last = i + {per}u - 1u;
while i < last && !less(left, sums[i]) {{ left = minus(left, sums[i]); i += 1u; }}
workgroupBarrier();
return vec3<u32>(i, left);
}}
fn sum_runs(kind: u32, first: u32, part: u32, stop: u32, local: u32) {{
let start = first + local / {per}u * part;
let end = min(start + part, stop);
var sum = vec2<u32>(0u);
for (var i = start + local % {per}u; i < end; i += {per}u) {{ sum = add(sum, amount(kind, i)); }}
sums[local] = sum;
add_runs(local);
}}"
    ));
}

/// For each row: a token. It becomes the row's token, and the row moves on by one position; all ones if a logit is NaN or
/// infinite, or all are forbidden. Bindings: logits, draws (`[rows, WORDS]`), step rows, tokens (`[steps, rows]`). Words: `width`, `at`
/// (where this step's tokens begin). Grid: rows.
pub fn draw() -> Shader {
    let mut s = Source::new("draw", THREADS);
    s.read("logits", "f32");
    s.read("draws", "vec4<u32>");
    s.write("step", "vec4<u32>");
    s.write("tokens", "u32");
    s.words("u32", &["width", "at"]);
    s.item(ARITHMETIC);
    s.item(&share());
    s.item(SEARCH);
    searches(&mut s);
    let bins = 1u32 << DIGIT;
    s.shared("low", "atomic<u32>", bins as usize);
    s.shared("high", "atomic<u32>", bins as usize);
    s.shared("odd", "atomic<u32>", 1);
    // All that is kept counts for so much; `runs` are left as they are for a look at which of them exceeds a goal.
    let part = format!("(p.width + {RUNS}u - 1u) / {RUNS}u");
    s.item(&format!(
        "fn total(kind: u32, local: u32) -> vec2<u32> {{
sum_runs(kind, 0u, {part}, p.width, local);
var sum = vec2<u32>(0u);
for (var i = 0u; i < {RUNS}u; i += 1u) {{ sum = add(sum, runs[i]); }}
return sum;
}}"
    ));
    // The id from `begin` on, before `before`, with which the sum of amounts exceeds the goal: run by run, then one by one.
    s.item(&format!(
        "fn id_past(kind: u32, begin: u32, before: u32, whole: vec2<u32>, local: u32) -> u32 {{
var first = begin;
var stop = before;
var goal = whole;
while first + {THREADS}u < stop {{
let part = (stop - first + {RUNS}u - 1u) / {RUNS}u;
sum_runs(kind, first, part, stop, local);
let found = run_past(goal);
workgroupBarrier();
first += found.x * part;
stop = min(first + part, stop);
goal = found.yz;
}}
sums[local] = vec2<u32>(0u);
if first + local < stop {{ sums[local] = amount(kind, first + local); }}
return first + first_past(goal, local).x;
}}"
    ));
    // One digit of the cut: amounts of tokens whose places begin with `prefix`, by their next digit.
    s.item(&format!(
        "fn digit_past(kind: u32, prefix: u32, shift: u32, bits: u32, goal: vec2<u32>, local: u32) -> vec3<u32> {{
for (var i = local; i < {bins}u; i += {THREADS}u) {{ atomicStore(&low[i], 0u); atomicStore(&high[i], 0u); }}
workgroupBarrier();
for (var i = local; i < p.width; i += {THREADS}u) {{
let place = place_of(logits[row + i]);
if ((place >> shift) >> bits) == prefix {{
let more = amount(kind, i);
if (more.x | more.y) != 0u {{
let digit = (place >> shift) & ((1u << bits) - 1u);
let old = atomicAdd(&low[digit], more.x);
let carry = more.y + u32(old + more.x < old);
if carry != 0u {{ atomicAdd(&high[digit], carry); }}
}}
}}
}}
workgroupBarrier();
var sum = vec2<u32>(0u);
for (var i = local * {per}u; i < local * {per}u + {per}u; i += 1u) {{
sum = add(sum, vec2<u32>(atomicLoad(&low[i]), atomicLoad(&high[i])));
}}
sums[local] = sum;
let found = first_past(goal, local);
var digit = found.x * {per}u;
var left = found.yz;
for (var i = 1u; i < {per}u; i += 1u) {{
let here = vec2<u32>(atomicLoad(&low[digit]), atomicLoad(&high[digit]));
if less(left, here) {{ break; }}
left = minus(left, here);
digit += 1u;
}}
workgroupBarrier();
return vec3<u32>(digit, left);
}}",
        per = bins / THREADS,
    ));
    let mut body = format!(
        "if local == 0u {{ atomicStore(&odd[0], 0u); }}
workgroupBarrier();
row = group.x * p.width;
var mine = logits[row];
var mine_at = 0u;
var spoilt = 0u;
for (var i = local; i < p.width; i += {THREADS}u) {{
let v = logits[row + i];
// Fast math knows no infinities, so the bits are looked at.
let bits = bitcast<u32>(v);
if (bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u {{ spoilt = 1u; }}
if v > mine {{ mine = v; mine_at = i; }}
}}
if spoilt == 1u {{ atomicStore(&odd[0], 1u); }}
sums[local] = vec2<u32>(bitcast<u32>(mine), mine_at);\n",
    );
    let mut width = THREADS / 2;
    while width > 0 {
        body += &format!(
            "workgroupBarrier();
if local < {width}u {{
let other = sums[local + {width}u];
let own = sums[local];
let v = bitcast<f32>(other.x);
let most = bitcast<f32>(own.x);
if v > most || (v == most && other.y < own.y) {{ sums[local] = other; }}
}}\n"
        );
        width /= 2;
    }
    let [golden, golden_high] = [GOLDEN as u32, (GOLDEN >> 32) as u32];
    s.build(
        &(body
            + &format!(
                "workgroupBarrier();
best = bitcast<f32>(sums[0].x);
var token = sums[0].y;
workgroupBarrier();
let how = draws[group.x * 2u];
let spread = draws[group.x * 2u + 1u];
below = bitcast<f32>(how.z);
inverse = bitcast<f32>(how.w);
cut = LAST;
cut_id = 0xffffffffu;
// One loop, not three pieces of text: compilers put functions where they are called. First two cuts, then the draw.
for (var stage = select(0u, 3u, how.x == 1u); stage < 3u; stage += 1u) {{
if stage == 2u || (stage == 0u && how.x > 0u && how.x < p.width) || (stage == 1u && how.y > 0u) {{
var goal = vec2<u32>(how.x - 1u, 0u);
var begin = 0u;
var end = p.width;
if stage > 0u {{
let all = total(stage, local);
goal = part_of(all, how.y);
if stage == 2u {{
let random = add(spread.xy, times(vec2<u32>(step[group.x].y, 0u), vec2<u32>({golden}u, {golden_high}u)));
let found = run_past(upper_half(mixed(random), all));
workgroupBarrier();
begin = found.x * ({part});
end = min(begin + {part}, p.width);
goal = found.yz;
}}
}}
var place = 0u;
if stage < 2u {{
var shift = 32u;
while shift > 0u {{
let bits = min(shift, {DIGIT}u);
shift -= bits;
let found = digit_past(stage, place, shift, bits, goal, local);
place = (place << bits) | found.x;
goal = found.yz;
}}
// Of those on an older cut none comes after its id, and the first of them come first here too.
cut = min(place, LAST);
}}
let id = id_past(select(3u + stage, 2u, stage == 2u), begin, end, goal, local);
if stage == 2u {{ token = id; }} else {{ cut_id = id; }}
}}
}}
if atomicLoad(&odd[0]) == 1u || bitcast<u32>(best) == 0xff800000u {{ token = 0xffffffffu; }}
storageBarrier();
if local == 0u {{
let old = step[group.x];
step[group.x] = vec4<u32>(token, old.y + 1u, old.z, old.w);
tokens[p.at + group.x] = token;
}}"
            )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        GpuOptions, common,
        device::Device,
        plan::{bind, map},
    };
    use nibble_sampler::{Sampler, SamplerParams};
    use nibble_testkit::uniform;

    /// What the kernel makes of rows of logits, each with its draw.
    fn drawn(device: &Device, rows: &[Vec<f32>], draws: &[Draw], position: u32) -> Vec<u32> {
        let pipeline = device.pipeline(&draw()).unwrap();
        let logits: Vec<u32> = rows.iter().flatten().map(|x| x.to_bits()).collect();
        let how: Vec<u32> = draws.iter().flat_map(|draw| words(draw, position)).collect();
        let step: Vec<u32> = rows.iter().flat_map(|_| [0, position, 0, 0]).collect();
        let buffers = [&logits, &how, &step].map(|words| {
            let buffer = device.buffer("a test", words.len() as u64 * 4).unwrap();
            device.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
            buffer
        });
        let bytes = rows.len() as u64 * 4;
        let tokens = device.buffer("a test", bytes).unwrap();
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = device.buffer_for("a test", bytes, usage).unwrap();
        let bindings = bind(device, &pipeline, buffers.iter().chain([&tokens]));
        let mut encoder = device.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &bindings, &[]);
            pass.set_immediates(0, bytemuck::cast_slice(&[rows.len() as u32, rows[0].len() as u32, 0]));
            pass.dispatch_workgroups(rows.len() as u32, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&tokens, 0, &staging, 0, bytes);
        device.queue.submit([encoder.finish()]);
        let mut found = vec![0; rows.len()];
        map(device, &staging, &mut found).unwrap();
        found
    }

    /// Logits of a vocabulary: some are equal, some forbidden, some far away.
    fn logits(seed: u64, vocab: usize) -> Vec<f32> {
        let mut row: Vec<f32> = uniform(seed, vocab).iter().map(|x| 9.0 * x).collect();
        for (i, x) in row.iter_mut().enumerate() {
            match (seed % 4, i % 7) {
                (1, _) => *x = (*x * 2.0).floor() / 2.0,
                (2, 3) => *x = f32::NEG_INFINITY,
                (2, 4) => *x *= 1e6,
                (3, _) => *x *= 0.01,
                _ => {}
            }
        }
        row
    }

    #[test]
    fn draws_are_the_samplers() {
        let Some(gpu) = common::gpu(GpuOptions::default()) else { return };
        let mut kinds = vec![];
        for temperature in [0.0, 0.6, 1.0, 1.7, 1e-30, 1e30] {
            for (top_k, top_p, min_p) in [
                (0, 1.0, 0.0),
                (1, 1.0, 0.0),
                (5, 1.0, 0.0),
                (40, 0.9, 0.05),
                (0, 0.7, 0.0),
                (0, 1.0, 0.2),
                (300, 0.999, 0.0),
                (3, 1e-9, 1.0),
            ] {
                kinds.push(SamplerParams { temperature, top_k, top_p, min_p, ..Default::default() });
            }
        }
        for (vocab, position) in [(1, 0), (5, 1), (257, 77), (5000, 4096), (70_001, 5)] {
            let mut rows = vec![];
            let mut samplers = vec![];
            let some = if vocab > 10_000 { 5 } else { 1 };
            for (i, kind) in kinds.iter().enumerate().step_by(some) {
                let seed = (i as u64).wrapping_mul(0x1_0000_0001);
                let mut sampler = Sampler::new(SamplerParams { seed, ..kind.clone() }, vocab).unwrap();
                sampler.seek(i as u64);
                samplers.push(sampler);
                rows.push(logits(i as u64 / 8 + i as u64, vocab));
            }
            let draws: Vec<_> = samplers.iter().map(|s| s.draw().unwrap()).collect();
            let found = drawn(&gpu.device, &rows, &draws, position);
            for (i, sampler) in samplers.iter_mut().enumerate() {
                let expected = sampler.sample(&mut rows[i]).unwrap_or(u32::MAX);
                assert_eq!(found[i], expected, "{vocab} {:?}", sampler.params());
            }
        }
    }

    #[test]
    fn bad_logits_give_no_token() {
        let Some(gpu) = common::gpu(GpuOptions::default()) else { return };
        let none = f32::NEG_INFINITY;
        let rows = [
            [0.5, f32::NAN, 1.0],
            [none; 3],
            [1.0, f32::INFINITY, 0.0],
            [none, 0.0, none],
            [0.0, none, f32::MIN],
        ];
        for draw in [Draw::LARGEST, Draw { top_k: 2, top_p: 1 << 31, ..Draw::LARGEST }] {
            let found = drawn(&gpu.device, &rows.map(Vec::from), &[draw; 5], 3);
            assert_eq!(found, [u32::MAX, u32::MAX, u32::MAX, 1, 0], "{draw:?}");
        }
    }
}
