//! Norms, and what else rounds its result for products.

use crate::{
    build::{Builder, Held, call},
    kernels::norm,
    pack::halves,
    shader::Shader,
    tape::{Call, Content, Dim, Fit, Slot, Variant, Word},
};
use nibble_graph::{Node, Op, Value};

impl Builder<'_> {
    pub(super) fn norm(
        &mut self,
        value: Value,
        shader: Shader,
        slots: Vec<Slot>,
        y: Slot,
        len: usize,
        eps: f32,
    ) {
        let call = self.norm_call(value, shader, slots, len, eps);
        self.push(value, y, vec![call]);
    }

    fn norm_call(&self, value: Value, shader: Shader, slots: Vec<Slot>, len: usize, eps: f32) -> Call {
        let groups = self.value(value).width / len;
        let words = vec![Word::Int(len as u32), Word::Int(groups as u32), Word::Float(eps)];
        call(shader, slots, words, [Dim::Fixed(groups as u32), Dim::Rows(1, 1), Dim::Fixed(1)])
    }

    /// A norm, which for few rows also rounds its result if products read it.
    pub(super) fn rms_norm(&mut self, value: Value, [x, weight, y]: [Slot; 3], len: usize, eps: f32) {
        let plain = self.norm_call(value, norm::rms_norm(), vec![x, weight, y], len, eps);
        if self.scaled_late.contains_key(&value) {
            let few = Variant { fit: Fit::rows(self.few()), calls: vec![] };
            return self.push_variants(
                value,
                Some(y),
                vec![few, Variant { fit: Fit::ALL, calls: vec![plain] }],
            );
        }
        let [codes, others] = self.readers(value);
        let shader = norm::rms_norm_codes(others);
        if !codes || len != self.value(value).width || self.is_wrong(&shader) {
            let all = Variant { fit: Fit::ALL, calls: vec![plain] };
            return self.push_single(value, Some(y), vec![all]);
        }
        let row_halves = halves(len);
        let most = self.few_rows(self.value(value).rows);
        let held = [16, 8].map(|bytes| self.add_slot(Content::Value, most * row_halves * bytes));
        self.held.insert((value, 1, Held::CodesFew), held);
        let slots = [x, weight, held[0], held[1]].into_iter().chain(others.then_some(y)).collect();
        let words = vec![Word::Int(row_halves as u32), Word::Int(len as u32), Word::Float(eps)];
        let grid = [Dim::Fixed(1), Dim::Rows(1, 1), Dim::Fixed(1)];
        let rounding = call(shader, slots, words, grid);
        let few = Variant { fit: Fit::rows(self.few()), calls: vec![rounding] };
        self.push_variants(value, Some(y), vec![few, Variant { fit: Fit::ALL, calls: vec![plain] }]);
    }

    /// Whether products of codes read `value` whole, and whether anything else reads it, for few rows.
    pub(super) fn readers(&mut self, value: Value) -> [bool; 2] {
        // Without fusing, every result is looked at.
        let mut readers = [false, !self.options.fuse];
        for user in self.users(value) {
            let node = user.map(|user| &self.graph.nodes[user]);
            let product =
                node.is_some_and(|node| self.is_factor(node, value) && self.by_codes(node.weights[0]));
            readers[usize::from(!product)] = true;
        }
        readers
    }

    /// Whether a node multiplies `value`, whole rows of it, and does nothing else with it.
    pub(super) fn is_factor(&self, node: &Node, value: Value) -> bool {
        match node.op {
            Op::Matmul => true,
            Op::ExpertMatmul { .. } => {
                let k = self.graph.weight(node.weights[0]).data.shape().row_len();
                node.inputs[0] == value && node.inputs[1] != value && k == self.value(value).width
            }
            _ => false,
        }
    }
}
