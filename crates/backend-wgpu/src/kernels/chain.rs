//! Element-wise ops, alone or behind another kernel's result.

use crate::shader::{Shader, Source};
use nibble_graph::Activation;

/// One element-wise op on a number at row `t`, column `n`.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// Plus element `n` of a vector.
    AddVector,
    /// Times element `n` of a vector.
    MulVector,
    /// Times the one element of a vector.
    MulScalar,
    /// Plus an element of a value of the same shape.
    AddValue,
    /// Times an element of a value of the same shape.
    MulValue,
    /// `activation(this) * value`
    GateOf(Activation),
    /// `activation(value) * this`
    GatedBy(Activation),
    /// Times a constant.
    Scale(f32),
    /// A function.
    Activate(Activation),
    /// `cap * tanh(this / cap)`
    SoftCap(f32),
}

impl Link {
    /// Whether it reads a buffer.
    pub fn has_operand(&self) -> bool {
        !matches!(self, Self::Scale(_) | Self::Activate(_) | Self::SoftCap(_))
    }
}

/// Whether a number is none. Fast math knows no NaN, so the bits are looked at.
pub const NO_NUMBER: &str =
    "fn no_number(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }";

/// Exponentials are kept in range: large arguments are no infinity on every device. Limits take no NaN, which is added again.
fn function(f: Activation) -> (&'static str, &'static str) {
    match f {
        Activation::Silu => ("silu", "return x / (1.0 + exp(clamp(-x, -80.0, 80.0)));"),
        Activation::GeluTanh => (
            "gelu",
            "let u = clamp(0.7978845608028654 * (fma(0.044715 * x * x, x, x)), -20.0, 20.0); return 0.5 * x * (1.0 + tanh(u));",
        ),
        Activation::Relu2 => ("relu2", "let r = max(x, 0.0); return select(r * r, x, no_number(x));"),
        Activation::Sigmoid => {
            ("sigmoid", "return select(1.0 / (1.0 + exp(clamp(-x, -80.0, 80.0))), x, no_number(x));")
        }
        // ln(1 + e) for small e as a series: 1 + e would lose it.
        Activation::Softplus => (
            "softplus",
            "let e = exp(clamp(x, -80.0, 20.0)); let y = select(log(1.0 + e), e * fma(-e, fma(-e, 0.3333333, 0.5), 1.0), e < 0.01); \
             return select(y, x, x > 20.0 || no_number(x));",
        ),
        Activation::OssGate => (
            "oss_gate",
            "let c = select(min(x, 7.0), x, no_number(x)); return c / (1.0 + exp(clamp(-1.702 * c, -80.0, 80.0)));",
        ),
        Activation::OssUp => ("oss_up", "return select(1.0 + clamp(x, -7.0, 7.0), x, no_number(x));"),
        Activation::Tanh => ("tanh_of", "return select(tanh(clamp(x, -20.0, 20.0)), x, no_number(x));"),
    }
}

/// Declares a function; returns its name.
pub fn activation(s: &mut Source, f: Activation) -> &'static str {
    let (name, body) = function(f);
    if body.contains("no_number") {
        s.item(NO_NUMBER);
    }
    s.item(&format!("fn {name}(x: f32) -> f32 {{ {body} }}"));
    name
}

/// Links with the names of the bindings that they read.
pub struct Chain {
    lines: String,
    early: String,
}

impl Chain {
    /// Declares the bindings of `links`, named `prefix` and a number, and the functions that they need.
    pub fn declare(s: &mut Source, links: &[Link], prefix: &str) -> Self {
        Self::make(s, links, prefix, false)
    }

    /// [`Self::declare`], with operands that [`Self::early`] has read.
    pub fn declare_early(s: &mut Source, links: &[Link], prefix: &str) -> Self {
        Self::make(s, links, prefix, true)
    }

    fn make(s: &mut Source, links: &[Link], prefix: &str, is_early: bool) -> Self {
        let (mut lines, mut early) = (String::new(), String::new());
        for (i, link) in links.iter().enumerate() {
            let mut name = format!("{prefix}{i}");
            if link.has_operand() {
                s.read(&name, "f32");
                let at = match link {
                    Link::AddVector | Link::MulVector => "n",
                    Link::MulScalar => "0",
                    _ => "e",
                };
                let read = format!("{name}[{at}]");
                if is_early {
                    s.item(&format!("var<private> {name}_early: f32;"));
                    name += "_early";
                    early += &format!("{name} = {read};\n");
                } else {
                    name = read;
                }
            }
            lines += &match link {
                Link::AddVector | Link::AddValue => format!("v += {name};\n"),
                Link::MulVector | Link::MulScalar | Link::MulValue => format!("v = apart(v * {name});\n"),
                Link::GateOf(f) => format!("v = apart({}(v) * {name});\n", activation(s, *f)),
                Link::GatedBy(f) => format!("v = apart(v * {}({name}));\n", activation(s, *f)),
                Link::Scale(factor) => format!("v = apart(v * f32({factor:?}));\n"),
                Link::Activate(f) => format!("v = apart({}(v));\n", activation(s, *f)),
                Link::SoftCap(cap) => {
                    let tanh = activation(s, Activation::Tanh);
                    format!("v = apart(f32({cap:?}) * {tanh}(v / f32({cap:?})));\n")
                }
            };
        }
        Self { lines, early }
    }

    /// Statements that apply the links to the variable `v` at column `n`, element `e` of a value.
    pub fn apply(&self) -> &str {
        &self.lines
    }

    /// Statements that read the operands for column `n`, element `e` before they are needed.
    pub fn early(&self) -> &str {
        &self.early
    }
}

/// `y = links(x)` for every element. Bindings: x, y, the links' operands. Grid: blocks of 256 columns, rows.
pub fn pointwise(links: &[Link]) -> Shader {
    let mut s = Source::new("pointwise", 256);
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    let chain = Chain::declare(&mut s, links, "c");
    s.build(&format!(
        "let n = group.x * 256u + local;
if n >= p.width {{ return; }}
let e = group.y * p.width + n;
var v = x[e];
{}y[e] = v;",
        chain.apply()
    ))
}
