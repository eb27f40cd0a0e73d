//! The op vocabulary. `backend-reference` holds the meaning of each in plain Rust.

use std::sync::Arc;

/// An element-wise function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`
    Silu,
    /// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
    GeluTanh,
    /// `max(x, 0)^2`
    Relu2,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `ln(1 + exp(x))`, `x` itself above 20
    Softplus,
    /// `tanh(x)`
    Tanh,
    /// `c / (1 + exp(-1.702 c))` with `c = min(x, 7)`: the gates of gpt-oss.
    OssGate,
    /// `1 + x`, `x` kept within -7 and 7: what the gates of gpt-oss multiply.
    OssUp,
}

/// Which numbers of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Number `i` with number `i + dims/2` (Hugging Face files).
    Split,
    /// Number `2i` with number `2i + 1` (GGUF files of the llama architecture).
    Interleaved,
}

/// The angle of pair `i` at position `p` is `p * inverse[i]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Frequencies {
    /// The same at every length.
    Fixed(Arc<[f32]>),
    /// Dynamic NTK scaling: the base grows with the length once it passes `original`.
    ///
    /// The length of a row at position `p` is `max(prompt length of its sequence, p + 1)`, which does not depend on
    /// how the prompt is cut into steps. With `length > original` the base is
    /// `base * (factor * length / original - (factor - 1)) ^ (dims / (dims - 2))`.
    Dynamic {
        /// The base without scaling.
        base: f32,
        /// The scaling factor.
        factor: f32,
        /// The length that the model was trained for.
        original: u32,
    },
}

/// Rotary position embedding of every head in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Numbers in a head; the row is a whole number of heads.
    pub head_dim: usize,
    /// Numbers of a head that turn: the first `dims`.
    pub dims: usize,
    /// Which of them turn together.
    pub layout: RopeLayout,
    /// How fast each pair turns.
    pub frequencies: Frequencies,
    /// Multiplies sine and cosine (YaRN's attention factor).
    pub magnitude: f32,
}

/// Causal attention over the keys and values kept for the row's sequence, the row's own included.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Which of [`crate::Graph::kv_layers`] holds keys and values; a layer is written by one op alone.
    pub cache: usize,
    /// Heads of queries: a multiple of the layer's `kv_heads`; consecutive ones share a key head.
    pub heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Only the last `window` positions are seen, the row's own included.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

/// How router logits become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
}

/// Choice of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// Experts used for each row.
    pub used: usize,
    /// How logits become scores.
    pub scoring: Scoring,
    /// Whether the chosen weights are divided by their sum.
    pub normalize: bool,
    /// Multiplies the weights in the end.
    pub scale: f32,
}

/// The gated delta rule, one step for each row in order of position.
///
/// For value head `h` with state `S` `[key_dim, value_dim]`, key head `h * key_heads / value_heads` (`grouped`) or
/// `h % key_heads`: `S = S * exp(decay)`; `d = (v - S^T k) * beta`; `S = S + k d^T`; result `S^T q * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedDelta {
    /// Which of [`crate::Graph::state_layers`] holds `S`: `value_heads * key_dim * value_dim` numbers.
    pub state: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, decays and betas: a multiple of `key_heads`.
    pub value_heads: usize,
    /// Numbers in a query or key.
    pub key_dim: usize,
    /// Numbers in a value.
    pub value_dim: usize,
    /// Multiplies the queries.
    pub scale: f32,
    /// Whether consecutive value heads share a key head; otherwise every `key_heads`-th ones do.
    pub grouped: bool,
}

/// What a node computes. Inputs and weights are listed as `(inputs; weights) -> width`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `(;) -> 1`: the ids of the step's tokens.
    Tokens,
    /// `(;) -> D`: numbers that come from outside before a step: what another plan made.
    Given {
        /// `D`.
        width: usize,
    },
    /// `(tokens; [V, D]) -> D`: one row of the weight for each token.
    Embed,
    /// `(x: K; [N, K]) -> N`: `y[n] = sum over k of x[k] * w[n, k]`.
    Matmul,
    /// `(x: D; [D]) -> D`: adds the weight to each row.
    Bias,
    /// `(x: D; [D] or [1]) -> D`: multiplies each row by the weight.
    Gain,
    /// `(a: D, b: D;) -> D`
    Add,
    /// `(a: D, b: D;) -> D`: element by element.
    Mul,
    /// `(x: D;) -> D`: times a constant.
    Scale(f32),
    /// `(x: D;) -> D`
    Activate(Activation),
    /// `(gate: D, up: D;) -> D`: `activation(gate) * up`. Expands into `Activate` and `Mul`.
    Gated(Activation),
    /// `(x: D;) -> D`: `cap * tanh(x / cap)`. Expands into `Scale`, `Activate` and `Scale`.
    SoftCap(f32),
    /// `(x: D; [group]) -> D`: each `group` consecutive numbers scaled to unit root mean square, then by the weight.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x: D;) -> D`: each `group` consecutive numbers `x / sqrt(sum of squares + eps)`.
    L2Norm {
        /// Numbers in a group.
        group: usize,
        /// Added to the sum of squares.
        eps: f32,
    },
    /// `(x: D;) -> D / group * len`: columns `start..start + len` of each `group` consecutive ones.
    Slice {
        /// Columns in a group.
        group: usize,
        /// The first one taken.
        start: usize,
        /// How many are taken.
        len: usize,
    },
    /// `(x: D; [N]) -> N`: for each number of the weight the column that it names, counted from 0; a 0 for -1.
    Columns,
    /// `(x: D;) -> D`: the Walsh-Hadamard transform of each `block` consecutive numbers, divided by the root of `block`:
    /// `y[r] = sum over c of (-1)^(ones of r & c) * x[c] / sqrt(block)`. It is its own inverse.
    Hadamard {
        /// A power of two.
        block: usize,
    },
    /// `(x: D;) -> D`
    Rope(Rope),
    /// `(q: heads * key_dim, k: kv_heads * key_dim, v: kv_heads * value_dim;) -> heads * value_dim`, or with `[heads]`
    /// sinks: scores of one more position, whose value is nothing.
    Attention(Attention),
    /// `(x: D; [D, kernel]) -> D`: causal depth-wise convolution, `y[t, d] = sum over j of w[d, j] *
    /// x[t - kernel + 1 + j, d]`. The state layer keeps the last `kernel - 1` rows, oldest first.
    ShortConv {
        /// Which of [`crate::Graph::state_layers`] it keeps its past in: `(kernel - 1) * D` numbers.
        state: usize,
    },
    /// `(q, k: key_heads * key_dim, v: value_heads * value_dim, decay, beta: value_heads;) -> value_heads * value_dim`
    GatedDelta(GatedDelta),
    /// `(logits: E;)` or `(logits: E; selection bias [E]) -> 2 * used`: the weights of the chosen experts, best
    /// first (the lower id wins ties), then their ids as numbers. The bias counts for the choice alone.
    Route(Route),
    /// `(x: K or used * K, route: 2 * used; [E, N, K]) -> used * N`: for each slot the matrix of its expert, times
    /// the row, or the slot's own part of it.
    ExpertMatmul {
        /// Experts used for each row.
        used: usize,
    },
    /// `(x: used * D, route: 2 * used; [E, D]) -> used * D`: adds to each slot's part the row of its expert.
    ExpertBias {
        /// Experts used for each row.
        used: usize,
    },
    /// `(x: used * D, route: 2 * used;) -> D`: the parts of a row summed with their route weights, in slot order.
    Combine {
        /// Experts used for each row.
        used: usize,
    },
    /// `(x: D;) -> D`: the rows whose output is wanted.
    Wanted,
}

impl Op {
    /// The op's name in dumps, traces and file names: `rms_norm`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Given { .. } => "given",
            Self::Embed => "embed",
            Self::Matmul => "matmul",
            Self::Bias => "bias",
            Self::Gain => "gain",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Scale(_) => "scale",
            Self::Activate(_) => "activate",
            Self::Gated(_) => "gated",
            Self::SoftCap(_) => "soft_cap",
            Self::RmsNorm { .. } => "rms_norm",
            Self::L2Norm { .. } => "l2_norm",
            Self::Slice { .. } => "slice",
            Self::Columns => "columns",
            Self::Hadamard { .. } => "hadamard",
            Self::Rope(_) => "rope",
            Self::Attention(_) => "attention",
            Self::ShortConv { .. } => "short_conv",
            Self::GatedDelta(_) => "gated_delta",
            Self::Route(_) => "route",
            Self::ExpertMatmul { .. } => "expert_matmul",
            Self::ExpertBias { .. } => "expert_bias",
            Self::Combine { .. } => "combine",
            Self::Wanted => "wanted",
        }
    }
}
