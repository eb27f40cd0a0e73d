//! What a plan runs: tasks over buffers, each one region of the pool or a few lines of the caller.

use crate::{
    attention,
    kernels::{Forms, Isa, Kernel},
    pointwise::Pointwise,
};
use nibble_graph::{GatedDelta, Label, Rope, Route, Rows};
use nibble_quant::Encoded;
use std::sync::Arc;

/// A place for one or more values that follow each other in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Buf(pub usize);

/// What is known of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufInfo {
    /// Kind of rows.
    pub rows: Rows,
    /// Numbers in a row.
    pub width: usize,
    /// The first task that uses it.
    pub first: usize,
    /// The last one; `usize::MAX` for outputs.
    pub last: usize,
    /// Whether there are twice as many rows while products of two rows each ([`Form::is_pairs`]) are added up.
    pub pairs: bool,
}

/// A matrix, or a stack of them, and how it is multiplied.
#[derive(Clone)]
pub struct Matrix {
    /// Shape, codec, bytes.
    pub data: Encoded,
    /// How.
    pub kernel: Kernel,
}

impl Matrix {
    /// Matrices of the stack, rows of each, numbers in a row.
    pub fn dims(&self) -> [usize; 3] {
        let shape = self.data.shape();
        let (stack, row_len) = (if let [stack, _, _] = shape.dims() { *stack } else { 1 }, shape.row_len());
        [stack, shape.rows() / stack.max(1), row_len]
    }
}

/// The form of a product's inputs: an index into the plan's activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Eight-bit codes.
    Codes = 0,
    /// Floats.
    Floats = 1,
    /// Eight-bit codes of all rows, then those of what the first lose: results are sums of two rows.
    Pairs = 2,
    /// Twelve-bit codes, for trellises.
    Wide = 3,
    /// The same of all rows, then of what the first lose.
    WidePairs = 4,
}

/// Something for each form.
pub type ByForm<T> = [T; Form::ALL.len()];

impl Form {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Codes, Self::Floats, Self::Pairs, Self::Wide, Self::WidePairs];

    /// What kernels of `isa` read of a row.
    pub fn kept(self, isa: Isa) -> Forms {
        match self {
            Self::Floats => Forms::FLOATS,
            Self::Wide | Self::WidePairs => Forms::WIDE,
            Self::Codes | Self::Pairs => Forms::of_codes(isa),
        }
    }

    /// Rows of input for `rows` rows of numbers.
    pub fn rows(self, rows: usize) -> usize {
        if self.is_pairs() { 2 * rows } else { rows }
    }

    /// Whether two rows of input are one row of numbers.
    pub fn is_pairs(self) -> bool {
        matches!(self, Self::Pairs | Self::WidePairs)
    }
}

/// The second operand of a [`Pointwise`] op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// There is none.
    None,
    /// The same for every row: an index into [`Program::vectors`].
    Vector(usize),
    /// Row by row.
    Buf(Buf),
    /// For each slot of a row the row of its expert.
    OfExpert {
        /// `[E, width]`: an index into [`Program::vectors`].
        vector: usize,
        /// Who the experts are.
        route: Buf,
        /// Numbers of a slot.
        width: usize,
    },
}

/// A step of the little program that a chunk of a task runs on its columns.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// `to = input * matrix`
    Multiply {
        /// Index into [`Program::matrices`].
        matrix: usize,
        /// The form of the input that it reads.
        form: Form,
        /// Where the product goes.
        to: Buf,
    },
    /// `to = op(to, with)`
    Apply {
        /// What.
        op: Pointwise,
        /// In place.
        to: Buf,
        /// Second operand.
        with: Operand,
    },
}

/// Actions on the same columns.
#[derive(Clone, Debug)]
pub struct Product {
    /// Columns: rows of the matrices.
    pub columns: usize,
    /// In order.
    pub actions: Vec<Action>,
}

/// A rope and its table of angles.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The op.
    pub rope: Rope,
    /// Index into [`Program::tables`].
    pub table: usize,
}

/// A task: `y` is always the result.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as in the graph's ops")]
pub enum Task {
    Embed {
        matrix: usize,
        y: Buf,
    },
    /// Rows scaled, then made inputs of products in the given forms.
    RmsNorm {
        x: Buf,
        y: Buf,
        vector: usize,
        eps: f32,
        fill: ByForm<bool>,
    },
    L2Norm {
        x: Buf,
        y: Buf,
        group: usize,
        eps: f32,
    },
    Slice {
        x: Buf,
        y: Buf,
        group: usize,
        start: usize,
        len: usize,
    },
    Columns {
        x: Buf,
        y: Buf,
        vector: usize,
    },
    Hadamard {
        x: Buf,
        y: Buf,
        block: usize,
    },
    Rope {
        x: Buf,
        y: Buf,
        turn: Turn,
    },
    Pointwise {
        x: Buf,
        y: Buf,
        actions: Vec<Action>,
    },
    /// Makes the rows of `x`, or their `parts` parts, inputs of products.
    Fill {
        x: Buf,
        parts: usize,
        form: Form,
    },
    Matmul {
        rows: Rows,
        products: Vec<Product>,
    },
    ExpertMatmul {
        route: Buf,
        used: usize,
        experts: usize,
        own_inputs: bool,
        products: Vec<Product>,
    },
    Attention {
        q: Buf,
        k: Buf,
        v: Buf,
        y: Buf,
        shape: attention::Shape,
        sinks: Option<usize>,
        turn_q: Option<Turn>,
        turn_k: Option<Turn>,
    },
    ShortConv {
        x: Buf,
        y: Buf,
        vector: usize,
        state: usize,
    },
    GatedDelta {
        q: Buf,
        k: Buf,
        v: Buf,
        decay: Buf,
        beta: Buf,
        y: Buf,
        op: GatedDelta,
    },
    Route {
        logits: Buf,
        y: Buf,
        bias: Option<usize>,
        op: Route,
    },
    Combine {
        x: Buf,
        route: Buf,
        y: Buf,
    },
    Wanted {
        x: Buf,
        y: Buf,
    },
}

/// A task and the nodes of the graph that it runs.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What to do.
    pub task: Task,
    /// The nodes that it runs.
    pub label: Arc<Label>,
    /// The buffers that it leaves to be checked, with the nodes whose numbers are in them.
    pub checked: Vec<(Buf, Label)>,
}

/// A compiled graph.
#[derive(Clone, Default)]
pub struct Program {
    /// In order.
    pub tasks: Vec<Placed>,
    /// Buffers.
    pub bufs: Vec<BufInfo>,
    /// Matrices, each held once.
    pub matrices: Vec<Matrix>,
    /// Weights of element-wise ops as numbers, each held once.
    pub vectors: Vec<Vec<f32>>,
    /// Ropes with different angles.
    pub tables: Vec<Rope>,
    /// Where the graph's outputs are.
    pub outputs: Vec<Buf>,
    /// Where numbers from outside go.
    pub given: Vec<Buf>,
}

impl Task {
    /// The buffers that it uses.
    pub fn bufs(&self) -> Vec<Buf> {
        let of_actions = |actions: &[Action]| -> Vec<Buf> {
            let of = |a: &Action| match *a {
                Action::Multiply { to, .. } => vec![to],
                Action::Apply {
                    to,
                    with: Operand::Buf(with) | Operand::OfExpert { route: with, .. },
                    ..
                } => {
                    vec![to, with]
                }
                Action::Apply { to, .. } => vec![to],
            };
            actions.iter().flat_map(of).collect()
        };
        let of_products =
            |p: &[Product]| -> Vec<Buf> { p.iter().flat_map(|p| of_actions(&p.actions)).collect() };
        match self {
            Self::Embed { y, .. } => vec![*y],
            Self::RmsNorm { x, y, .. }
            | Self::L2Norm { x, y, .. }
            | Self::Slice { x, y, .. }
            | Self::Columns { x, y, .. }
            | Self::Hadamard { x, y, .. }
            | Self::Rope { x, y, .. }
            | Self::ShortConv { x, y, .. }
            | Self::Wanted { x, y } => vec![*x, *y],
            Self::Pointwise { x, y, actions } => [vec![*x, *y], of_actions(actions)].concat(),
            Self::Fill { x, .. } => vec![*x],
            Self::Matmul { products, .. } => of_products(products),
            Self::ExpertMatmul { route, products, .. } => [vec![*route], of_products(products)].concat(),
            Self::Attention { q, k, v, y, .. } => vec![*q, *k, *v, *y],
            Self::GatedDelta { q, k, v, decay, beta, y, .. } => vec![*q, *k, *v, *decay, *beta, *y],
            Self::Route { logits, y, .. } => vec![*logits, *y],
            Self::Combine { x, route, y } => vec![*x, *route, *y],
        }
    }
}
