//! Attention: rows go into the bank, then some of them attend to it, all by the kernels of one plan.

use super::{Case, Expected, Job, Twin, numbers::Seeded};
use crate::{
    kernels::{
        attention::{
            self, Heads, Runs,
            alone::{self, Alone},
            tiles,
        },
        gemm::Tiles,
        kv::{self, Bank, PAGE, Turn},
        kv_blocks,
    },
    shader::Shader,
};
use nibble_backend::KvType;
use nibble_graph::{Attention, RopeLayout};

/// Positions of the sequence: three pages, the last one partly filled.
const LEN: usize = 150;

/// Rows that attend: at the end, on both sides of a page's edge, and where there is least to see.
const AT: [usize; 4] = [LEN - 1, 64, 63, 0];

/// The kernels that attend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Row by row.
    Runs(Runs),
    /// In tiles of rows.
    Tiles(Tiles),
    /// Rows that are alone in their sequence, whose numbers are not in the bank yet.
    Alone {
        /// Whether they join runs.
        joins: bool,
    },
}

impl How {
    /// Positions of the rows that attend.
    fn at(self) -> Vec<usize> {
        match self {
            Self::Runs(_) | Self::Alone { .. } => AT.to_vec(),
            // More than a tile of rows one after the other.
            Self::Tiles(_) => (LEN - 67..LEN).collect(),
        }
    }
}

/// The kernels of an attention for some number of rows.
#[derive(Clone, Debug)]
pub struct Attend {
    /// The op.
    pub op: Attention,
    /// The bank.
    pub bank: Bank,
    /// How queries and keys turn.
    pub turn: Option<Turn>,
    /// Which they are.
    pub how: How,
    /// Whether runs that are apart end as codes.
    pub codes: bool,
    /// Whether runs are joined in turn.
    pub in_turn: bool,
    /// Whether heads have sinks.
    pub sinks: bool,
}

impl Attend {
    /// What keeping keys and values in few bits may change, as a share of the largest result.
    fn tolerance(&self) -> f64 {
        match self.bank.kv {
            KvType::F32 => 1e-4,
            // Queries and weights are rounded, too.
            KvType::F16 if matches!(self.how, How::Tiles(_)) => 1e-2,
            KvType::F16 => 4e-3,
            KvType::Q8_0 => 3e-2,
            KvType::Q4_0 => 0.4,
        }
    }

    /// A head at `position`, turned.
    fn turned(&self, head: &[f64], position: usize, turns: &[f64]) -> Vec<f64> {
        let mut out = head.to_vec();
        let Some(turn) = self.turn else { return out };
        let half = turn.dims / 2;
        for i in 0..half {
            let [cos, sin] = [0, 1].map(|c| turns[(position * half + i) * 2 + c]);
            let (a, b) = match turn.layout {
                RopeLayout::Split => (i, i + half),
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
            };
            (out[a], out[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
        }
        out
    }

    /// The result of a row: all heads.
    fn row(&self, at: usize, q: &[f64], keys: &[Vec<f64>], v: &[f64], sinks: &[f64]) -> Vec<f64> {
        let layer = self.bank.layer;
        let begin = self.op.window.map_or(0, |w| (at + 1).saturating_sub(w));
        let mut out = vec![];
        for head in 0..self.op.heads {
            let kv_head = head / (self.op.heads / layer.kv_heads);
            let q = &q[head * layer.key_dim..(head + 1) * layer.key_dim];
            let score = |p: usize| {
                let k = &keys[p * layer.kv_heads + kv_head];
                let s = f64::from(self.op.scale) * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
                self.op.soft_cap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh())
            };
            let weights: Vec<f64> = (begin..=at).map(|p| score(p).exp()).collect();
            let total = weights.iter().sum::<f64>() + sinks.get(head).map_or(0.0, |s| s.exp());
            for d in 0..layer.value_dim {
                let value = |p: usize| v[(p * layer.kv_heads + kv_head) * layer.value_dim + d];
                let sum: f64 = (begin..=at).zip(&weights).map(|(p, w)| w * value(p)).sum();
                out.push(sum / total);
            }
        }
        out
    }
}

impl Twin for Attend {
    fn case(&self, _: &Shader) -> Case {
        let r = &mut Seeded::new(9);
        let mut c = Case::default();
        let layer = self.bank.layer;
        let at = self.how.at();
        let (heads, rows) = (self.op.heads, at.len());
        // Two sequences; the one that is looked at is the second, and its pages lie in no order.
        let pages = [7u32, 2, 0, 3];
        let step = |positions: &[usize]| positions.iter().flat_map(|&p| [0, p as u32, 1, 1]).collect();
        let is_alone = matches!(self.how, How::Alone { .. });
        let joins = self.how == How::Alone { joins: true };
        // What is alone brings its own key and value.
        let all: Vec<usize> = (0..LEN - usize::from(is_alone)).collect();
        let (every, some) = (c.add(step(&all)), c.add(step(&at)));
        let sequences = c.add([vec![0; 8], vec![1, 0, 0, 0, 0, rows as u32, 0, 0]].concat());
        let table = c.add(pages.to_vec());
        let mut k = r.numbers(LEN * layer.kv_heads * layer.key_dim);
        if matches!(self.how, How::Tiles(_)) {
            // Scores that are far above those before.
            k[128 * layer.kv_heads * layer.key_dim..].iter_mut().for_each(|k| *k *= 8.0);
        }
        let v = r.numbers(LEN * layer.kv_heads * layer.value_dim);
        // Scores of some size, so that weights differ.
        let reach = 2.0 / (f64::from(self.op.scale) * (layer.key_dim as f64).sqrt());
        let q: Vec<f64> = r.numbers(rows * heads * layer.key_dim).iter().map(|q| q * reach).collect();
        let sinks: Vec<f64> = if self.sinks { r.numbers(heads) } else { vec![] };
        let [keys, values] = self.bank.page_words().map(|words| c.add_output(4 * words as usize));
        let norms = self.turn.and_then(|turn| turn.norms);
        let by: [Vec<f64>; 2] =
            [reach, 1.0].map(|most| (0..layer.key_dim).map(|_| most * r.size()).collect());
        let normed = |x: &[f64], i: usize| -> Vec<f64> {
            let Some(norms) = norms else { return x.to_vec() };
            let heads = x.chunks_exact(layer.key_dim).flat_map(|head| {
                let mean = head.iter().map(|x| x * x).sum::<f64>() / layer.key_dim as f64;
                let scale = 1.0 / (mean + f64::from(norms[i].get())).sqrt();
                head.iter().zip(&by[i]).map(move |(x, w)| x * scale * w).collect::<Vec<_>>()
            });
            heads.collect()
        };
        let half = self.turn.map_or(0, |turn| turn.dims / 2);
        let turns: Vec<f64> = (0..LEN * half)
            .flat_map(|_| {
                let angle = 3.0 * r.number();
                [angle.cos(), angle.sin()]
            })
            .collect();

        let turn = self.turn.as_ref();
        let moves = turn.is_some() || self.bank.rotates();
        let (write, groups) = if self.bank.is_blocks() {
            let asking = if moves { heads } else { 0 };
            (kv_blocks::write(&self.bank, turn, heads), 2 * layer.kv_heads + asking)
        } else {
            let words = self.bank.row_words().iter().sum::<u32>() as usize * layer.kv_heads;
            let asking = if moves { heads * layer.key_dim } else { 0 };
            let groups = match norms {
                Some(_) => 2 * layer.kv_heads + heads,
                None => (words + asking).div_ceil(64),
            };
            (kv::write(&self.bank, turn), groups)
        };
        let pick = |x: &[f64], width: usize| -> Vec<f64> {
            at.iter().flat_map(|&p| x[p * width..(p + 1) * width].to_vec()).collect()
        };
        let by_row = self.turn.is_some_and(|turn| turn.by_row);
        let queries = c.add_floats(&q);
        let mut asked = queries;
        let mut before = vec![];
        // All rows first; then those that attend again, whose queries turn with them.
        for positions in [&all, &at] {
            let whole = positions.len() == all.len();
            let of = |x: &[f64], width: usize| if whole { x.to_vec() } else { pick(x, width) };
            let k = c.add_floats(&of(&k, layer.kv_heads * layer.key_dim));
            let v = c.add_floats(&of(&v, layer.kv_heads * layer.value_dim));
            let mut buffers = vec![if whole { every } else { some }, sequences, table, k, v, keys, values];
            if self.turn.is_some() {
                let turns = if by_row { of(&turns, 2 * half) } else { turns.clone() };
                buffers.push(c.add_floats(&turns));
            }
            if norms.is_some() {
                buffers.extend(by.iter().map(|by| c.add_floats(by)));
            }
            if moves {
                let width = heads * layer.key_dim;
                let own = if whole { c.add(vec![0; LEN * width]) } else { queries };
                let turned = c.add_output(positions.len() * width);
                buffers.extend([own, turned]);
                asked = turned;
            }
            if is_alone && !whole {
                buffers.truncate(buffers.len() - if moves { 2 } else { 0 });
                before = [buffers, vec![queries]].concat();
                continue;
            }
            let grid = [groups, positions.len(), 1];
            let shader = write.clone();
            c.jobs.push(Job { shader, buffers, words: vec![positions.len() as u32], grid });
        }

        let width = heads * layer.value_dim;
        // Some have several pages.
        let runs = 2;
        let mut buffers = if is_alone { before } else { vec![some, sequences, table, asked, keys, values] };
        let y = c.add_output(rows * width);
        let sums = c.add_output(rows * width * runs);
        let stats = c.add_output(rows * heads * runs * 2);
        let sink = self.sinks.then(|| c.add_floats(&sinks));
        let (codes, scales) = (c.add_output(rows * width / 4 + 1), c.add_output(rows * width / 8 + 1));
        let ends = if self.codes { vec![codes, scales] } else { vec![y] };
        let apart = matches!(self.how, How::Runs(Runs::Apart) | How::Alone { joins: false });
        let mut groups = layer.kv_heads * Heads::new(&self.op, &self.bank).groups;
        if apart || is_alone {
            buffers.extend([sums, stats]);
        }
        if is_alone {
            groups = layer.kv_heads * alone::heads(&self.op, &self.bank).groups;
        }
        if joins {
            let zeros = vec![0; rows * groups];
            let done = c.add(zeros.clone());
            buffers.extend([done].into_iter().chain(ends.iter().copied()).chain(sink));
            c.expected.push(Expected::Words { buffer: done, words: zeros });
        } else if !apart {
            buffers.extend([y].into_iter().chain(sink));
        }
        let words = vec![rows as u32, runs as u32];
        let (shader, words_of, grid) = match self.how {
            How::Runs(how) => {
                let shader = attention::attend(&self.op, &self.bank, how, self.sinks);
                (shader, words.clone(), [groups, rows, if apart { runs } else { 1 }])
            }
            How::Alone { joins } => {
                let (op, bank, codes, sinks) = (&self.op, &self.bank, self.codes, self.sinks);
                let shader = alone::attend(&Alone { op, bank, turn, joins, codes, sinks });
                (shader, words.clone(), [groups, rows, runs])
            }
            How::Tiles(by) => {
                let each = tiles::rows(&self.bank, &by).expect("there is a kernel to be tried");
                let shader = tiles::attend(&self.op, &self.bank, &by, self.sinks);
                (shader, words[..1].to_vec(), [heads, rows.div_ceil(each), 1])
            }
        };
        c.jobs.push(Job { shader, buffers, words: words_of, grid });
        if !apart && self.bank.rotates() {
            let shader = kv_blocks::unrotate(heads, layer.value_dim);
            c.jobs.push(Job { shader, buffers: vec![y], words: vec![rows as u32], grid: [heads, rows, 1] });
        }
        if apart {
            let buffers = [some, sums, stats].into_iter().chain(ends).chain(sink).collect();
            let shader = attention::join(&self.op, &self.bank, self.codes, self.in_turn, self.sinks);
            c.jobs.push(Job { shader, buffers, words, grid: [heads, rows, 1] });
        }

        let (q, k) = (normed(&q, 0), normed(&k, 1));
        let keys: Vec<Vec<f64>> = k
            .chunks_exact(layer.key_dim)
            .enumerate()
            .map(|(i, head)| self.turned(head, i / layer.kv_heads, &turns))
            .collect();
        let mut numbers = vec![];
        for (row, &at) in at.iter().enumerate() {
            let q = &q[row * heads * layer.key_dim..(row + 1) * heads * layer.key_dim];
            let q: Vec<f64> =
                q.chunks_exact(layer.key_dim).flat_map(|head| self.turned(head, at, &turns)).collect();
            numbers.extend(self.row(at, &q, &keys, &v, &sinks));
        }
        let tolerance = self.tolerance();
        c.expected.push(match (apart || joins) && self.codes {
            true => Expected::Codes { codes, scales, numbers, tolerance },
            false => Expected::Floats { buffer: y, numbers, tolerance },
        });
        debug_assert!(pages[1..].iter().all(|&page| page < 4) && LEN.div_ceil(PAGE as usize) == 3);
        c
    }
}
