//! Element-wise nodes behind another one.

use super::Builder;
use crate::{kernels::chain::Link, tape::Slot};
use nibble_graph::{Node, Op, Value};

impl Builder<'_> {
    /// An element-wise node as a link behind `first`, with its second operand: a value or a vector.
    pub fn as_link(&mut self, node: &Node, first: Value) -> Option<(Link, Option<Value>, Option<Slot>)> {
        let other = || if node.inputs[0] == first { node.inputs[1] } else { node.inputs[0] };
        Some(match node.op {
            Op::Bias => (Link::AddVector, None, Some(self.vector(node.weights[0]))),
            Op::Gain => {
                let one = self.graph.weight(node.weights[0]).data.shape().elements() == 1;
                let link = if one { Link::MulScalar } else { Link::MulVector };
                (link, None, Some(self.vector(node.weights[0])))
            }
            Op::Add => (Link::AddValue, Some(other()), None),
            Op::Mul => (Link::MulValue, Some(other()), None),
            Op::Gated(f) if node.inputs[0] == first => (Link::GateOf(f), Some(node.inputs[1]), None),
            Op::Gated(f) => (Link::GatedBy(f), Some(node.inputs[0]), None),
            Op::Scale(factor) => (Link::Scale(factor), None, None),
            Op::Activate(f) => (Link::Activate(f), None, None),
            Op::SoftCap(cap) => (Link::SoftCap(cap), None, None),
            _ => return None,
        })
    }

    /// Follows the element-wise nodes that alone read `value`, as long as their operands are in buffers below `made`:
    /// those made before the call in hand. Returns the last value, with the links and their buffers. `plain` leaves
    /// out operands that are vectors.
    pub fn follow(&mut self, mut value: Value, made: usize, plain: bool) -> (Value, Vec<Link>, Vec<Slot>) {
        let (mut links, mut slots) = (vec![], vec![]);
        // Metal takes 29 buffers a kernel; a chain's share of these is small.
        while let Some(user) = self.only_user(value).filter(|_| slots.len() < 6) {
            let node = &self.graph.nodes[user];
            if !is_pointwise(&node.op) {
                break;
            }
            let Some((link, other, vector)) = self.as_link(node, value) else { break };
            if other == Some(value) || (plain && vector.is_some()) {
                break;
            }
            match other {
                Some(other) => match self.slots[other.0 as usize] {
                    Some(slot) if slot.0 < made => slots.push(slot),
                    _ => break,
                },
                None => slots.extend(vector),
            }
            links.push(link);
            value = Value(user as u32);
        }
        (value, links, slots)
    }
}

/// Whether an op is one of [`Builder::as_link`].
pub fn is_pointwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Bias
            | Op::Gain
            | Op::Add
            | Op::Mul
            | Op::Gated(_)
            | Op::Scale(_)
            | Op::Activate(_)
            | Op::SoftCap(_)
    )
}
