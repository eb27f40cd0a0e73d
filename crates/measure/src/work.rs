//! How many bytes and products a step needs at least, counted from the graph.

use nibble_api::{Graph, GraphOp, KvType};
use std::collections::BTreeMap;

/// What a graph needs for a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of weights that every step reads, once.
    pub dense_bytes: f64,
    /// Bytes that one row reads by its own: its row of the embedding.
    pub row_bytes: f64,
    /// Stacks of experts.
    pub experts: Vec<Experts>,
    /// Keys and values, by layer.
    pub kv: Vec<KvWork>,
    /// Bytes of recurrent state that a sequence reads and writes in a step.
    pub state_bytes: f64,
    /// Products of inputs with weights for each row.
    pub row_products: f64,
    /// And for each row whose logits are wanted.
    pub wanted_products: f64,
}

/// Matrices of which each row uses some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Bytes of all of them.
    pub bytes: f64,
    /// How many there are.
    pub count: f64,
    /// How many a row uses.
    pub used: f64,
}

/// Keys and values of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvWork {
    /// Bytes of one position.
    pub position_bytes: f64,
    /// The most positions that are seen.
    pub window: Option<f64>,
}

impl Experts {
    /// Bytes that a step of so many rows reads, if each row's choice is a draw of its own: an expert is left out by
    /// all of them with probability `(1 - used / count) ^ rows`.
    fn bytes(&self, rows: f64) -> f64 {
        self.bytes * (1.0 - (1.0 - self.used / self.count).powf(rows))
    }
}

impl Work {
    /// Counts.
    pub fn of(graph: &Graph, kv: KvType) -> Self {
        let mut work = Self::default();
        // Weights that several ops read count once: the first reading leaves what a cache can hold to the next one.
        let mut dense = BTreeMap::new();
        for node in &graph.nodes {
            let weights = || node.weights.iter().map(|&id| (id, &graph.weight(id).data));
            match &node.op {
                GraphOp::Embed => work.row_bytes += weights().map(|(_, w)| w.row_bytes() as f64).sum::<f64>(),
                GraphOp::ExpertMatmul { used } => {
                    for (_, w) in weights() {
                        let count = w.shape().dims()[0].max(1) as f64;
                        let used = *used as f64;
                        work.experts.push(Experts { bytes: w.byte_len() as f64, count, used });
                        work.row_products += w.shape().elements() as f64 / count * used;
                    }
                }
                GraphOp::Matmul => {
                    let products: f64 = weights().map(|(_, w)| w.shape().elements() as f64).sum();
                    match node.rows {
                        nibble_api::GraphRows::Tokens => work.row_products += products,
                        nibble_api::GraphRows::Wanted => work.wanted_products += products,
                    }
                    dense.extend(weights().map(|(id, w)| (id, w.byte_len() as f64)));
                }
                GraphOp::Attention(op) => {
                    let layer = &graph.kv_layers[op.cache];
                    let head = kv.row_bytes(layer.key_dim) + kv.row_bytes(layer.value_dim);
                    work.kv.push(KvWork {
                        position_bytes: (layer.kv_heads * head) as f64,
                        window: op.window.map(|n| n as f64),
                    });
                    dense.extend(weights().map(|(id, w)| (id, w.byte_len() as f64)));
                }
                _ => dense.extend(weights().map(|(id, w)| (id, w.byte_len() as f64))),
            }
        }
        work.dense_bytes = dense.values().sum();
        work.state_bytes = graph.state_layers.iter().map(|s| 2.0 * 4.0 * s.len as f64).sum();
        work
    }

    /// Bytes that a decoding step reads: all weights that it touches once, and for each of `sequences` sequences the
    /// keys and values of `positions` positions and its state.
    pub fn decode_bytes(&self, sequences: usize, positions: f64) -> f64 {
        let rows = sequences as f64;
        let experts: f64 = self.experts.iter().map(|e| e.bytes(rows)).sum();
        let kv: f64 =
            self.kv.iter().map(|l| l.position_bytes * positions.min(l.window.unwrap_or(f64::INFINITY))).sum();
        self.dense_bytes + experts + rows * (self.row_bytes + kv + self.state_bytes)
    }

    /// Products of weights for a prompt of which one row's logits are wanted. Products of queries with keys and of
    /// scores with values come on top and are not counted: they are floats.
    pub fn prompt_products(&self, tokens: usize) -> f64 {
        tokens as f64 * self.row_products + self.wanted_products
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_api::Model;

    fn known() -> Work {
        Work {
            dense_bytes: 1000.0,
            row_bytes: 10.0,
            experts: vec![Experts { bytes: 800.0, count: 8.0, used: 2.0 }],
            kv: vec![
                KvWork { position_bytes: 4.0, window: None },
                KvWork { position_bytes: 4.0, window: Some(16.0) },
            ],
            state_bytes: 30.0,
            row_products: 7.0,
            wanted_products: 5.0,
        }
    }

    #[test]
    fn a_step_reads_weights_once_and_the_rest_for_each_sequence() {
        let one = 1000.0 + 800.0 * 0.25 + 10.0 + 4.0 * 64.0 + 4.0 * 16.0 + 30.0;
        assert_eq!(known().decode_bytes(1, 64.0), one);
        // Two rows leave an expert out with probability (3/4)^2.
        let two = 1000.0 + 800.0 * (1.0 - 0.5625) + 2.0 * (10.0 + 4.0 * 64.0 + 4.0 * 16.0 + 30.0);
        assert_eq!(known().decode_bytes(2, 64.0), two);
        assert_eq!(known().prompt_products(3), 26.0);
    }

    #[test]
    fn a_model_of_one_pass_touches_all_its_weights() {
        let model = Model::builtin().unwrap();
        let work = Work::of(&model.graph, KvType::F16);
        let all = model.checkpoint.weight_bytes() as f64;
        let at_start = work.decode_bytes(1, 0.0);
        assert!(at_start <= all * 1.01 && at_start > all * 0.5, "{at_start} of {all}");
        let kv = work.decode_bytes(1, 100.0) - at_start;
        let heads: usize = model.graph.kv_layers.iter().map(|l| l.kv_heads * (l.key_dim + l.value_dim)).sum();
        assert_eq!(kv, (100 * heads * 2) as f64);
        assert!(work.row_products > 0.0 && work.wanted_products > 0.0 && work.experts.is_empty());
    }
}
