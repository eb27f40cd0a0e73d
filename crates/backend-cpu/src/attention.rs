//! `attention`: queries against the pages of their sequence.
//!
//! Work is cut into tiles of rows times key heads; a tile turns each page of keys and values into numbers once. The
//! context is cut into parts of [`PART`] positions whose results are joined in order, so that a single row with a long
//! context can be shared by threads: the joins are the same when one thread does all parts.

use crate::{
    attend::{self, Page, Scratch, Seen, padded},
    dispatch::by_isa,
    hadamard::rotate,
    kernels::Isa,
    kv::KvLayout,
    lanes::Lanes,
    parts::Parts,
    pool::Team,
};
use nibble_backend::{KvType, PAGE_LEN, Step};
use nibble_graph::{Attention, KvLayer};
use std::ops::Range;

/// Positions in a part of the context.
pub const PART: usize = 1024;

/// The most rows of a step that share their parts among threads.
const SPLIT_ROWS: usize = 8;

/// Queries in a tile, about.
const QUERIES: usize = 32;

/// Neighbouring rows of one sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tile {
    row: u32,
    rows: u32,
    sequence: u32,
    position: u32,
}

impl Tile {
    /// Its rows of the step.
    pub fn rows(&self) -> Range<usize> {
        self.row as usize..(self.row + self.rows) as usize
    }

    /// Its sequence of the step.
    pub fn sequence(&self) -> usize {
        self.sequence as usize
    }
}

/// The sizes of one attention op.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The op.
    pub op: Attention,
    /// Its layer of the bank.
    pub keys: KvLayer,
}

/// Working memory of attention, for all ops of a plan.
pub struct Memory<'a> {
    /// Room for a tile for every row of a step.
    pub tiles: &'a mut [Tile],
    /// `scratch_len` numbers for each thread: at least [`Shape::scratch_len`].
    pub scratch: &'a mut [f32],
    /// See `scratch`.
    pub scratch_len: usize,
    /// [`Shape::parts_len`] numbers.
    pub parts: &'a mut [f32],
}

impl Shape {
    fn group(&self) -> usize {
        self.op.heads / self.keys.kv_heads
    }

    fn tile_rows(&self) -> usize {
        (QUERIES / self.group()).max(1)
    }

    fn queries(&self) -> usize {
        self.tile_rows() * self.group()
    }

    /// Numbers of scratch for one thread.
    pub fn scratch_len(&self) -> usize {
        Scratch::len(self.queries(), self.keys.key_dim, self.keys.value_dim).next_multiple_of(16)
    }

    /// Numbers kept of a part for one query: its sums, maximum and sum of weights.
    fn part_len(&self) -> usize {
        padded(self.keys.value_dim) + 16
    }

    /// Numbers that hold the results of parts, when threads share them.
    pub fn parts_len(&self, rows: usize, context: usize) -> usize {
        let parts = context.div_ceil(PART);
        if parts < 2 { 0 } else { rows.min(SPLIT_ROWS) * self.op.heads * parts * self.part_len() }
    }

    /// The first position that a row at `position` sees.
    fn first(&self, position: usize) -> usize {
        self.op.window.map_or(0, |w| (position + 1).saturating_sub(w))
    }
}

/// What attention reads beside the bank.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[T, heads * key_dim]`
    pub q: &'a [f32],
    /// `[heads]`: scores of one more position whose value is nothing.
    pub sinks: Option<&'a [f32]>,
}

/// One attention op in one step.
struct Run<'a> {
    isa: Isa,
    shape: &'a Shape,
    layout: &'a KvLayout,
    bank: &'a [u8],
    step: &'a Step<'a>,
    inputs: Inputs<'a>,
    y: Parts<'a, f32>,
}

/// Computes `y` `[T, heads * value_dim]` from its inputs and the bank.
pub fn attention(
    team: &mut Team<'_>,
    isa: Isa,
    shape: &Shape,
    layout: &KvLayout,
    bank: &[u8],
    step: &Step<'_>,
    inputs: Inputs<'_>,
    y: &mut [f32],
    memory: Memory<'_>,
) {
    let run = Run { isa, shape, layout, bank, step, inputs, y: Parts::new(y) };
    let tiles = cut(step, shape.tile_rows(), memory.tiles);
    let tiles = &memory.tiles[..tiles];
    let heads = shape.keys.kv_heads;
    let scratch_len = memory.scratch_len;
    let scratch = Parts::new(memory.scratch);
    let mine = |thread: usize| {
        // SAFETY: a thread number belongs to one running chunk at a time, and ranges of different threads are apart.
        let memory = unsafe { scratch.part(thread * scratch_len..(thread + 1) * scratch_len) };
        Scratch::new(memory, shape.queries(), shape.keys.key_dim, shape.keys.value_dim)
    };
    let most = step.positions.iter().map(|&p| p as usize / PART + 1).max().unwrap_or(0);
    let split = most > 1 && step.tokens.len() <= SPLIT_ROWS && tiles.len() * heads < 16 * team.threads();
    if !split {
        // The last rows have the most to do, so they go first.
        team.run(tiles.len() * heads, |chunk, thread| {
            let tile = tiles[tiles.len() - 1 - chunk / heads];
            run.whole(tile, chunk % heads, &mut mine(thread));
        });
        return;
    }
    let results = Parts::new(memory.parts);
    team.run(tiles.len() * heads * most, |chunk, thread| {
        let (tile, head, part) = (tiles[chunk / most / heads], chunk / most % heads, chunk % most);
        run.part(tile, head, part, &mut mine(thread));
        run.keep(tile, head, part, most, &mine(thread), results);
    });
    team.run(tiles.len() * heads, |chunk, thread| {
        let (tile, head) = (tiles[chunk / heads], chunk % heads);
        run.join(tile, head, most, results, &mut mine(thread));
    });
}

/// Cuts the rows of a step into tiles; returns how many.
pub fn cut(step: &Step<'_>, most: usize, tiles: &mut [Tile]) -> usize {
    let mut count: usize = 0;
    for (row, (&sequence, &position)) in step.sequence.iter().zip(step.positions).enumerate() {
        let last = count.checked_sub(1).map(|i| &mut tiles[i]);
        match last.filter(|t| t.sequence == sequence && (t.rows as usize) < most) {
            Some(tile) => tile.rows += 1,
            None => {
                tiles[count] = Tile { row: row as u32, rows: 1, sequence, position };
                count += 1;
            }
        }
    }
    count
}

impl Run<'_> {
    /// All parts of a tile, joined.
    fn whole(&self, tile: Tile, head: usize, s: &mut Scratch<'_>) {
        let last = (tile.position + tile.rows - 1) as usize;
        let parts = self.shape.first(tile.position as usize) / PART..last / PART + 1;
        let queries = s.total_running.len() / 2;
        s.total_running[..queries].fill(f32::NEG_INFINITY);
        s.total_running[queries..].fill(0.0);
        for part in parts {
            self.part(tile, head, part, s);
            let width = padded(self.shape.keys.value_dim);
            for query in 0..tile.rows as usize * self.shape.group() {
                let (top, sum) = (s.running[query], s.running[queries + query]);
                let total = &mut s.total[query * width..(query + 1) * width];
                let (tops, sums) = s.total_running.split_at_mut(queries);
                let sums_of_part = &s.sums[query * width..(query + 1) * width];
                join(&mut tops[query], &mut sums[query], total, top, sum, sums_of_part);
            }
        }
        self.finish(tile, head, s);
    }

    /// One part of the context of a tile, into `s.running` and `s.sums`.
    fn part(&self, tile: Tile, head: usize, part: usize, s: &mut Scratch<'_>) {
        let run = self;
        by_isa!(self.isa, part_of(run: &Run<'_>, tile: Tile, head: usize, part: usize, s: &mut Scratch<'_>));
    }

    /// Writes the result of a part where [`Self::join`] finds it.
    fn keep(&self, tile: Tile, head: usize, part: usize, most: usize, s: &Scratch<'_>, out: Parts<'_, f32>) {
        let (queries, width, len) =
            (s.running.len() / 3, padded(self.shape.keys.value_dim), self.shape.part_len());
        for query in 0..tile.rows as usize * self.shape.group() {
            let at = self.place(tile, head, query, part, most) * len;
            // SAFETY: tile, head, query and part name one place, which belongs to this chunk alone.
            let out = unsafe { out.part(at..at + len) };
            out[..width].copy_from_slice(&s.sums[query * width..(query + 1) * width]);
            (out[width], out[width + 1]) = (s.running[query], s.running[queries + query]);
        }
    }

    fn place(&self, tile: Tile, head: usize, query: usize, part: usize, most: usize) -> usize {
        let group = self.shape.group();
        let row = tile.row as usize + query / group;
        (row * self.shape.op.heads + head * group + query % group) * most + part
    }

    /// Joins the parts of a tile that threads shared.
    fn join(&self, tile: Tile, head: usize, most: usize, parts: Parts<'_, f32>, s: &mut Scratch<'_>) {
        let (queries, width, len) =
            (s.total_running.len() / 2, padded(self.shape.keys.value_dim), self.shape.part_len());
        s.total_running[..queries].fill(f32::NEG_INFINITY);
        s.total_running[queries..].fill(0.0);
        for query in 0..tile.rows as usize * self.shape.group() {
            let total = &mut s.total[query * width..(query + 1) * width];
            let (tops, sums) = s.total_running.split_at_mut(queries);
            for part in 0..most {
                let at = self.place(tile, head, query, part, most) * len;
                // SAFETY: the region that wrote the parts is over, and this chunk alone reads these.
                let part = unsafe { parts.part(at..at + len) };
                join(&mut tops[query], &mut sums[query], total, part[width], part[width + 1], &part[..width]);
            }
        }
        self.finish(tile, head, s);
    }

    /// Divides by the sum of weights and writes the rows of the result.
    fn finish(&self, tile: Tile, head: usize, s: &mut Scratch<'_>) {
        let (group, dim) = (self.shape.group(), self.shape.keys.value_dim);
        let (queries, width) = (s.total_running.len() / 2, padded(dim));
        for query in 0..tile.rows as usize * group {
            let row = tile.row as usize + query / group;
            let head = head * group + query % group;
            let at = (row * self.shape.op.heads + head) * dim;
            // SAFETY: tile, head and query name one head of one row, which belongs to this chunk alone.
            let y = unsafe { self.y.part(at..at + dim) };
            let (top, sum) = (s.total_running[query], s.total_running[queries + query]);
            let sink = self.inputs.sinks.map_or(0.0, |sinks| (sinks[head] - top).exp());
            let inverse = (sum + sink).recip();
            for (y, x) in y.iter_mut().zip(&s.total[query * width..]) {
                *y = x * inverse;
            }
            if self.layout.kv == KvType::Q4_0 {
                rotate(y);
            }
        }
    }

    /// The places of page `page` that a row at `position` sees.
    fn seen(&self, position: usize, page: usize) -> Range<usize> {
        let start = page * PAGE_LEN;
        let first = self.shape.first(position).max(start);
        let end = (position + 1).min(start + PAGE_LEN);
        first.min(end.max(start)) - start..end.max(start) - start
    }
}

/// Joins the result of a part with the result of all parts before it.
fn join(top: &mut f32, sum: &mut f32, total: &mut [f32], part_top: f32, part_sum: f32, part: &[f32]) {
    if part_sum == 0.0 {
        return; // a part of which this row sees nothing
    }
    if *sum == 0.0 {
        (*top, *sum) = (part_top, part_sum);
        total.copy_from_slice(part);
        return;
    }
    let new = top.max(part_top);
    let (old_by, part_by) = ((*top - new).exp(), (part_top - new).exp());
    (*top, *sum) = (new, *sum * old_by + part_sum * part_by);
    for (total, part) in total.iter_mut().zip(part) {
        *total = *total * old_by + part * part_by;
    }
}

/// The body of [`Run::part`] for one instruction set.
///
/// # Safety
/// The instruction set of `L` was detected.
#[inline(always)]
unsafe fn part_of<L: Lanes>(run: &Run<'_>, tile: Tile, head: usize, part: usize, s: &mut Scratch<'_>) {
    let shape = run.shape;
    let (group, keys) = (shape.group(), shape.keys);
    let (rows, first) = (tile.rows as usize, tile.position as usize);
    let queries = s.running.len() / 3;
    s.running[..queries].fill(f32::NEG_INFINITY);
    s.running[queries..2 * queries].fill(0.0);
    s.sums[..rows * group * padded(keys.value_dim)].fill(0.0);
    load_queries(run, tile, head, s);
    let pages = run.step.sequences[tile.sequence as usize].pages;
    let last = first + rows - 1;
    let from = shape.first(first).max(part * PART) / PAGE_LEN;
    let to = (last / PAGE_LEN + 1).min((part + 1) * (PART / PAGE_LEN));
    for page in from..to {
        let sees = |row: usize| !run.seen(first + row, page).is_empty();
        let Some(start) = (0..rows).find(|&r| sees(r)) else { continue };
        let end = (start..rows).find(|&r| !sees(r)).unwrap_or(rows);
        let (key_bytes, value_bytes) = run.layout.head(pages[page], shape.op.cache, head);
        let (next_keys, next_values) = match pages[from..to].get(page + 1 - from) {
            Some(&next) => run.layout.head(next, shape.op.cache, head),
            None => (0..0, 0..0),
        };
        let page_of = |bytes: Range<usize>, next: Range<usize>, dim: usize| Page {
            kv: run.layout.kv,
            bytes: &run.bank[bytes],
            dim,
            from: start * group,
            to: end * group,
            next: if next.is_empty() { std::ptr::null() } else { run.bank[next].as_ptr() },
        };
        // SAFETY: the caller's promise is passed on.
        unsafe {
            attend::scores::<L>(page_of(key_bytes, next_keys, keys.key_dim), s);
            for query in start * group..end * group {
                let seen = run.seen(first + query / group, page);
                attend::soften::<L>(s, query, seen.start, seen.end, shape.op.scale, shape.op.soft_cap);
            }
            let mut row = start;
            let parts = std::iter::from_fn(|| {
                let seen = run.seen(first + row, page);
                let same = (row..end).find(|&r| run.seen(first + r, page) != seen).unwrap_or(end);
                let part = Seen { from: row * group, to: same * group, lo: seen.start, hi: seen.end };
                row = same;
                (part.from < part.to).then_some(part)
            });
            attend::accumulate::<L>(page_of(value_bytes, next_values, keys.value_dim), s, parts);
        }
    }
}

/// The queries of a tile, turned as the keys in the bank are.
fn load_queries(run: &Run<'_>, tile: Tile, head: usize, s: &mut Scratch<'_>) {
    let (group, dim) = (run.shape.group(), run.shape.keys.key_dim);
    let width = run.shape.op.heads * dim;
    for row in 0..tile.rows as usize {
        let at = (tile.row as usize + row) * width + head * group * dim;
        s.q[row * group * dim..(row + 1) * group * dim].copy_from_slice(&run.inputs.q[at..at + group * dim]);
    }
    if run.layout.kv == KvType::Q4_0 {
        s.q[..tile.rows as usize * group * dim].chunks_exact_mut(dim).for_each(rotate);
    }
}
