//! Mixtures of experts: the choice, the order of rows by expert, the weighted sum.

use super::products::Group;
use crate::{
    build::{Builder, Choosing, End, FEW, Rounding, Sum, call, columns, ints},
    form::Form,
    kernels::{
        combine,
        ends::Round,
        gemm::{self, Tiles},
        gemv::{Choice, MOST_EXPERTS},
        group, route,
    },
    tape::{Content, Dim, Fit, Variant},
};
use nibble_graph::{Op, Route, Value};

/// How products of experts take up to `most` rows: in tiles of `height` rows of one expert.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping {
    pub(super) most: usize,
    pub(super) height: usize,
    tiles: Option<Tiles>,
}

/// How a product of experts takes many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Tile by tile, by matrices.
    Matrices(Tiles),
    /// Tile by tile, in registers.
    Registers(usize),
    /// Row by row.
    Rows,
}

impl Way {
    /// Rows and results of a tile.
    pub(super) fn size(self) -> [usize; 2] {
        match self {
            Self::Matrices(tiles) => tiles.size(),
            Self::Registers(height) => [height, gemm::REGISTER_TILE],
            Self::Rows => [1, 1],
        }
    }
}

impl Builder<'_> {
    /// How the rows of `experts` experts, of which each row uses some, are taken if there are many. The lower tiles are for
    /// steps that leave an expert few rows, as what is filled up costs what rows cost.
    pub(super) fn groupings(&self, used: usize, experts: usize) -> Vec<Grouping> {
        let caps = self.options.caps;
        let heights = match (caps.software, caps.matrix) {
            (true, _) => &[16, 32][..],
            // Matrices of 8 mean a GPU with few registers.
            (_, Some(16)) => &[16, 32, 64, 128],
            _ => &[16, 32, 64],
        };
        // Rows that leave an expert as many as half of the next tile on average.
        let most =
            |i: usize| heights.get(i + 1).map_or(usize::MAX, |next| (next * experts / (2 * used)).max(FEW));
        let tiles = |height: usize| {
            let matrices = self.matrices()?;
            let along = height / caps.matrix? as usize;
            Some(match (caps.software, along) {
                (true, _) => matrices([2, 2], [along / 2, 2]),
                (_, 1) => matrices([1, 4], [1, 2]),
                (_, 2) => matrices([1, 4], [2, 2]),
                (_, 4) => matrices([1, 4], [4, 2]),
                (_, 8) if caps.matrix == Some(8) => matrices([2, 2], [4, 4]),
                _ => matrices([2, 8], [4, 2]),
            })
        };
        let all = heights.iter().enumerate();
        let mut all: Vec<_> =
            all.map(|(i, &height)| Grouping { most: most(i), height, tiles: tiles(height) }).collect();
        all.retain(|grouping| grouping.most > FEW);
        let wrong = |g: &Grouping| self.is_wrong(&group::arrange(used, experts, g.height));
        if self.options.strict || all.iter().any(wrong) { vec![] } else { all }
    }

    /// The ways of a product of experts for many rows, each with the most rows it is for.
    pub(super) fn ways(
        &self,
        group: &Group,
        form: &Form,
        choice: Choice,
        experts: usize,
    ) -> Vec<(usize, Way)> {
        let Choice::Experts { used, .. } = choice else { return vec![] };
        let right = |way: &Way| self.multiplies(group, form, choice, *way);
        let mut ways: Vec<_> = self
            .groupings(used, experts)
            .into_iter()
            .map(|g| {
                let tiles = g.tiles.map(Way::Matrices).filter(right);
                let way = tiles.or(Some(Way::Registers(g.height)).filter(right));
                (g.most, way.unwrap_or(Way::Rows))
            })
            .collect();
        if ways.is_empty() {
            ways.push((usize::MAX, Way::Rows));
        }
        ways
    }

    /// The choice of experts; for many rows their entries are put in order behind it.
    pub(super) fn route(&mut self, value: Value, r: &Route) {
        let node = self.value(value);
        let experts = self.value(node.inputs[0]).width;
        let logits = self.slot(node.inputs[0]);
        let bias = node.weights.first().map(|&w| self.vector(w));
        let y = self.fresh(value);
        let shader = route::route(r, experts, bias.is_some());
        let slots = [logits].into_iter().chain(bias).chain([y]).collect();
        let choose = call(shader, slots, vec![], [Dim::Fixed(1), Dim::Rows(1, 1), Dim::Fixed(1)]);
        let few = match self.chooses_late(value, experts) {
            true => {
                self.choosing.insert(value, Choosing { route: *r, experts, logits, bias });
                vec![]
            }
            false => vec![choose.clone()],
        };
        let mut variants = vec![Variant { fit: Fit::rows(FEW), calls: few }];
        let groupings = self.groupings(r.used, experts);
        if self.most_rows(node.rows) <= FEW || groupings.is_empty() {
            variants.push(Variant { fit: Fit::ALL, calls: vec![choose] });
            return self.push_variants(value, Some(y), variants);
        }
        let entries = self.most_rows(node.rows) * r.used;
        let tiles = |g: &Grouping| group::most_tiles(entries, experts, g.height);
        let most = |f: &dyn Fn(&Grouping) -> usize| groupings.iter().map(f).max().unwrap_or(0);
        let words = [experts, 1 + most(&tiles), most(&|g| tiles(g) * g.height)];
        let [counts, tiles, order] = words.map(|words| self.add_slot(Content::Value, words * 4));
        self.orders.insert(value, [tiles, order]);
        let grid = [Dim::Fixed(experts as u32), Dim::Fixed(1), Dim::Fixed(1)];
        let count = call(group::count(r.used), vec![y, counts], vec![], grid);
        for g in groupings {
            let arrange = group::arrange(r.used, experts, g.height);
            let arrange = call(arrange, vec![y, counts, tiles, order], vec![], grid);
            variants.push(Variant {
                fit: Fit::rows(g.most),
                calls: vec![choose.clone(), count.clone(), arrange],
            });
        }
        self.push_variants(value, Some(y), variants);
    }

    /// Whether the first node that reads a route is a product, which then makes the choice itself.
    fn chooses_late(&self, route: Value, experts: usize) -> bool {
        let users = self.users(route);
        let first = users.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min());
        let product = |user: usize| {
            let node = &self.graph.nodes[user];
            matches!(node.op, Op::ExpertMatmul { .. }) && node.inputs[0] != route
        };
        let fast = self.options.fuse && !self.options.strict && self.rounds();
        fast && experts <= MOST_EXPERTS && first.is_some_and(product)
    }

    /// The sum that is all that becomes of a product of experts, to be made by the same call; `matrix` is the product's.
    pub(super) fn sum_behind(&mut self, product: Value, matrix: usize) -> Option<Sum> {
        let node = self.value(product);
        let Op::ExpertMatmul { used } = node.op else { return None };
        // All experts must be in one part, with inputs of their own.
        let own = self.value(node.inputs[0]).width != self.tape.matrices[matrix].row_len;
        let whole = self.tape.matrices[matrix].parts.len() == 1;
        if !own || !whole || self.options.strict || !self.rounds() {
            return None;
        }
        let follows = |b: &Self, value: Value| {
            let user = b.only_user(value)?;
            let node = &b.graph.nodes[user];
            (node.inputs[0] == value && node.inputs[1..] == [b.value(product).inputs[1]]).then_some(user)
        };
        let mut user = follows(self, product)?;
        let biases = match self.graph.nodes[user].op {
            Op::ExpertBias { .. } => Some(self.graph.nodes[user].weights[0]),
            _ => None,
        };
        if biases.is_some() {
            user = follows(self, Value(user as u32))?;
        }
        let combine = Value(user as u32);
        if !matches!(self.value(combine).op, Op::Combine { .. }) {
            return None;
        }
        let bias = biases.map(|w| self.vector(w));
        let (end, last) = self.sum_end(combine);
        self.done[combine.0 as usize] = false;
        let choice = Choice::Sum { used, bias: bias.is_some() };
        let sum = Sum { choice, bias, round: self.round_behind(last, end.3), end, last };
        self.sums.insert(combine, sum.clone());
        Some(sum)
    }

    /// What follows a sum of experts, and the value that it makes.
    fn sum_end(&mut self, value: Value) -> (End, Value) {
        let made = self.tape.slots.len();
        let (last, links, operands) = self.follow(value, made, false);
        self.mark(value, last);
        let y = self.fresh(last);
        ((links, operands, y, self.value(value).width), last)
    }

    /// The sum of experts, with what follows; for few rows it is rounded at once if products or their norm read it, or made by
    /// the product before.
    pub(super) fn combine(&mut self, value: Value, used: usize) {
        let inputs = &self.value(value).inputs;
        let [x, route] = [inputs[0], inputs[1]].map(|input| self.slot(input));
        let made = self.sums.remove(&value);
        let by_product = made.is_some();
        let ((links, operands, y, width), last, round) = match made {
            Some(sum) => (sum.end, sum.last, sum.round),
            None => {
                let (end, last) = self.sum_end(value);
                let round = self.round_behind(last, end.3);
                (end, last, round)
            }
        };
        self.done[value.0 as usize] = true;
        let combine = |round: Option<Rounding>| {
            let how = round.map(|r| if r.norm.is_some() { Round::ForNorm } else { Round::Plain });
            let mut slots = vec![x, route, y];
            slots.extend(&operands);
            slots.extend(round.iter().flat_map(|r| r.held.into_iter().chain(r.norm.into_iter().flatten())));
            call(combine::combine(used, &links, how), slots, ints([width]), columns(width, 256))
        };
        let mut variants = vec![];
        if by_product {
            variants.push(Variant { fit: Fit::rows(FEW), calls: vec![] });
        } else if round.is_some() {
            variants.push(Variant { fit: Fit::rows(self.few()), calls: vec![combine(round)] });
        }
        variants.push(Variant { fit: Fit::ALL, calls: vec![combine(None)] });
        self.push_variants(last, Some(y), variants);
    }
}

#[cfg(test)]
mod tests {
    use crate::{adapters::Caps, build::Options, compile::tape, tape::StepShape};
    use nibble_backend::{Activations, KvType, Limits};
    use nibble_graph::{
        Activation, Attention, Frequencies, Graph, KvLayer, Rope, RopeLayout, Route, Scoring, Weight,
    };
    use nibble_quant::{Encoded, codec};
    use nibble_tensor::Shape;
    use nibble_testkit::{ops, uniform};
    use std::collections::BTreeSet;

    const WIDTH: usize = 64;

    fn weight(name: &str, codec_name: &str, dims: &[usize]) -> Weight {
        let shape = Shape::new(dims).unwrap();
        let numbers = uniform(1, shape.elements());
        Weight::new(name, Encoded::encode(name, shape, codec(codec_name), &numbers, None).unwrap())
    }

    /// Layers as those of qwen3moe.
    fn graph(layers: usize) -> Graph {
        let mut g = Graph::default();
        let frequencies = Frequencies::Fixed((0..16).map(|i| 0.7f32.powi(i)).collect());
        let rope = Rope { head_dim: 32, dims: 32, layout: RopeLayout::Split, frequencies, magnitude: 1.0 };
        let mut x = ops::rows(&mut g, "x", WIDTH).unwrap();
        for layer in 0..layers {
            let f32s = |name: &str, dims: &[usize]| weight(&format!("{layer}.{name}"), "f32", dims);
            let codes = |name: &str, dims: &[usize]| weight(&format!("{layer}.{name}"), "q4_0", dims);
            let h = g.rms_norm(x, f32s("norm", &[WIDTH]), 1e-5).unwrap();
            let [q, k, v] = [("q", 64), ("k", 32), ("v", 32)]
                .map(|(name, n)| g.matmul(h, codes(name, &[n, WIDTH])).unwrap());
            let q = g.rms_norm(q, f32s("q_norm", &[32]), 1e-5).unwrap();
            let k = g.rms_norm(k, f32s("k_norm", &[32]), 1e-5).unwrap();
            let (q, k) = (g.rope(q, rope.clone()).unwrap(), g.rope(k, rope.clone()).unwrap());
            let cache = g.add_cache(KvLayer { kv_heads: 1, key_dim: 32, value_dim: 32 });
            let attention = Attention { cache, heads: 2, scale: 0.2, window: None, soft_cap: None };
            let h = g.attention(q, k, v, attention).unwrap();
            let h = g.matmul(h, codes("o", &[WIDTH, WIDTH])).unwrap();
            x = g.add(x, h).unwrap();
            let h = g.rms_norm(x, f32s("norm 2", &[WIDTH]), 1e-5).unwrap();
            let logits = g.matmul(h, f32s("router", &[8, WIDTH])).unwrap();
            let choice = Route { used: 2, scoring: Scoring::Softmax, normalize: true, scale: 1.0 };
            let route = g.route(logits, None, choice).unwrap();
            let [gate, up] =
                ["gate", "up"].map(|name| g.expert_matmul(h, route, codes(name, &[8, 96, WIDTH])).unwrap());
            let h = g.gated(Activation::Silu, gate, up).unwrap();
            let h = g.expert_matmul(h, route, codes("down", &[8, WIDTH, 96])).unwrap();
            let h = g.combine(h, route).unwrap();
            x = g.add(x, h).unwrap();
        }
        let h = g.rms_norm(x, weight("norm", "f32", &[WIDTH]), 1e-5).unwrap();
        let y = g.matmul(h, weight("head", "q4_0", &[33, WIDTH])).unwrap();
        g.output(y);
        g
    }

    #[test]
    fn kernels_of_layers_that_are_alike_are_tried_once() {
        let caps = Caps::of_a_server();
        let limits = Limits { kv: KvType::F16, activations: Activations::Auto, ..ops::limits(512) };
        let tried = |layers: usize| -> BTreeSet<String> {
            let tape = tape(&graph(layers), Options::new(&caps, &limits), "a device").unwrap();
            let calls = tape.entries.iter().flat_map(|entry| entry.variants.iter().flat_map(|v| &v.calls));
            calls.filter(|call| call.shader.twin.is_some()).map(|call| call.shader.key()).collect()
        };
        assert_eq!(tried(3), tried(2));
    }

    #[test]
    fn a_token_is_six_calls_a_layer_and_eight_beside_others_of_its_sequence() {
        let caps = Caps::of_a_server();
        let limits = Limits {
            kv: KvType::F16,
            activations: Activations::Auto,
            check_finite: false,
            ..ops::limits(512)
        };
        let calls = |layers: usize, rows: usize, alone: bool| -> usize {
            let tape = tape(&graph(layers), Options::new(&caps, &limits), "a device").unwrap();
            let shape = StepShape { sequences: if alone { rows } else { 1 }, alone, reach: 100 };
            let variant = |entry: &crate::tape::Entry| {
                entry.variants.iter().find(|v| v.fit.takes(rows, shape)).map_or(0, |v| v.calls.len())
            };
            tape.entries.iter().map(variant).sum()
        };
        for rows in [1, 4, 8] {
            assert_eq!(calls(3, rows, true) - calls(2, rows, true), 6, "{rows} rows");
            assert_eq!(calls(3, rows, false) - calls(2, rows, false), 8, "{rows} rows");
        }
        // However many rows there are, and however they divide among the experts.
        assert_eq!(calls(3, 512, false) - calls(2, 512, false), calls(3, 9, false) - calls(2, 9, false));
    }
}
