//! Matrix times many rows, tile by tile: by cooperative matrices in half precision with sums in 32 bits, or in registers.

use super::{chain::Link, gemv::outputs, weights::Weights};
use crate::{
    form::Form,
    shader::{Shader, Source},
};

/// Numbers of the sum that are in workgroup memory at once.
const DEPTH: usize = 32;

/// Side of the register kernel's tile; its 256 invocations make 4 by 4 results each.
pub const REGISTER_TILE: usize = 64;

/// Bindings: x (f32), planes, outputs with operands. Words: `n`, `first`, `halves`, `k`, factor, widths.
/// Grid: `n / 64`, rows / 64.
pub fn registers(form: &Form, products: &[Vec<Link>]) -> Shader {
    let mut s = Source::new(format!("gemm {}", form.describe()), 256);
    s.read("x", "f32");
    s.words("u32", &["n", "first", "halves", "k"]);
    let weights = Weights::declare(&mut s, form, "a");
    outputs(&mut s, products, "");
    let side = REGISTER_TILE + 4;
    s.shared("xs", &format!("array<f32, {}>", DEPTH * side));
    s.shared("ws", &format!("array<f32, {}>", DEPTH * side));
    let mut body = String::from(
        "let m0 = group.y * 64u;\nlet n0 = group.x * 64u;\nlet tx = local % 16u;\nlet ty = local / 16u;\n",
    );
    for i in 0..4 {
        for j in 0..4 {
            body += &format!("var s{i}{j} = 0.0;\n");
        }
    }
    body += "for (var h = 0u; h < p.halves; h += 2u) {\n";
    // x: 64 rows of 32 numbers, 8 an invocation.
    body += "let xr = local / 4u;\nlet xk = local % 4u * 8u;\nlet row = min(m0 + xr, p.rows - 1u) * p.k;\n";
    for c in 0..8 {
        let k = format!("h * 16u + xk + {c}u");
        body += &format!(
            "xs[(xk + {c}u) * {side}u + xr] = select(0.0, x[row + min({k}, p.k - 1u)], {k} < p.k);\n"
        );
    }
    // The matrix: 64 rows of two halves, one for each of 128 invocations.
    body += "if local < 128u {\nlet wr = local / 2u;\nlet wh = local % 2u;\n";
    body += &weights.load("v", "min(n0 + wr, p.n - 1u) * p.halves + h + wh");
    for j in 0..4 {
        body += &format!("let d{j} = {};\n", weights.decoded("v", j));
        for c in 0..4 {
            body += &format!("ws[(wh * 16u + {}u) * {side}u + wr] = d{j}[{c}];\n", j * 4 + c);
        }
    }
    body += "}\nworkgroupBarrier();\n";
    body += &format!("for (var k = 0u; k < {DEPTH}u; k += 1u) {{\n");
    for i in 0..4 {
        body += &format!(
            "let a{i} = xs[k * {side}u + ty * 4u + {i}u];\nlet b{i} = ws[k * {side}u + tx * 4u + {i}u];\n"
        );
    }
    for i in 0..4 {
        for j in 0..4 {
            body += &format!("s{i}{j} += a{i} * b{j};\n");
        }
    }
    body += "}\nworkgroupBarrier();\n}\n";
    let sums: Vec<_> = (0..16).map(|e| format!("s{}{}", e / 4, e % 4)).collect();
    body += &format!(
        "var sums = array<f32, 16>({});
for (var e = 0u; e < 16u; e += 1u) {{
let t = m0 + ty * 4u + e / 4u;
let n = n0 + tx * 4u + e % 4u;
if t < p.rows && n < p.n {{ finish(t, p.first + n, sums[e]); }}
}}",
        sums.join(", ")
    );
    s.build(&body)
}

/// How a cooperative kernel is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Side of the device's matrices: 8 or 16.
    pub side: usize,
    /// Invocations in a subgroup.
    pub lanes: usize,
    /// Subgroups along rows and along results.
    pub subs: [usize; 2],
    /// Matrices of a subgroup along rows and along results.
    pub each: [usize; 2],
    /// Whether workgroup memory holds vectors of four; Metal cannot load matrices from these.
    pub vectors: bool,
}

impl Tiles {
    /// Rows and results of a workgroup.
    pub fn size(&self) -> [usize; 2] {
        [0, 1].map(|i| self.side * self.subs[i] * self.each[i])
    }

    fn threads(&self) -> usize {
        self.lanes * self.subs[0] * self.subs[1]
    }
}

/// Bindings: x (half precision, rows filled up to whole halves), the scale of each row, planes, outputs with operands.
/// Words and grid as [`registers`], with the size of the tiles.
pub fn cooperative(form: &Form, products: &[Vec<Link>], tiles: &Tiles) -> Shader {
    let [rows, columns] = tiles.size();
    let threads = tiles.threads();
    let mut s = Source::new(format!("gemm {} {rows}x{columns}", form.describe()), threads as u32);
    s.enable("f16");
    s.enable("wgpu_cooperative_matrix");
    s.subgroups();
    s.read("x", "vec4<f16>");
    s.read("xs", "f32");
    s.words("u32", &["n", "first", "halves", "k"]);
    let weights = Weights::declare(&mut s, form, "a");
    outputs(&mut s, products, "v *= xs[t];\n");

    // Padding keeps rows apart in the banks of workgroup memory.
    let stride = DEPTH + 8;
    let (unit, element) = if tiles.vectors { (4, "vec4<f16>") } else { (1, "f16") };
    s.shared("xt", &format!("array<{element}, {}>", rows * stride / unit));
    s.shared("wt", &format!("array<{element}, {}>", columns * stride / unit));
    let side = tiles.side;
    let subs = tiles.subs[0] * tiles.subs[1];
    // Results leave by way of workgroup memory, as many rows of matrices at once as it has room for.
    let row_area = side * side * tiles.each[1];
    let at_once = if row_area * tiles.each[0] * subs * 4 <= 16 << 10 { tiles.each[0] } else { 1 };
    let area = row_area * at_once;
    s.shared("out", &format!("array<f32, {}>", subs * area));
    let store = |array: &str, at: &str, value: &str| -> String {
        if tiles.vectors {
            return format!("{array}[({at}) / 4u] = {value};\n");
        }
        (0..4).map(|c| format!("{array}[{at} + {c}u] = ({value})[{c}];\n")).collect()
    };
    let mut body = format!(
        "let m0 = group.y * {rows}u;\nlet n0 = group.x * {columns}u;
let sm = sub / {0}u * {1}u;\nlet sn = sub % {0}u * {2}u;\n",
        tiles.subs[1],
        tiles.each[0] * side,
        tiles.each[1] * side,
    );
    let kind = |role: &str, ty: &str| format!("coop_mat{side}x{side}<{ty}, {role}>");
    for i in 0..tiles.each[0] {
        for j in 0..tiles.each[1] {
            body += &format!("var c{i}_{j} = {}();\n", kind("C", "f32"));
        }
    }
    body += "for (var h = 0u; h < p.halves; h += 2u) {\n";
    // x in pieces of four numbers, eight of them a row.
    let pieces = rows * DEPTH / 4;
    for piece in 0..pieces.div_ceil(threads) {
        let guard = pieces < (piece + 1) * threads;
        body += &format!(
            "{{ let i = local + {}u;\n{}let r = i / 8u;\nlet v = x[min(m0 + r, p.rows - 1u) * p.halves * 4u + h * 4u + i % 8u];\n",
            piece * threads,
            if guard { format!("if i < {pieces}u {{\n") } else { String::new() },
        );
        body += &store("xt", &format!("r * {stride}u + i % 8u * 4u"), "v");
        body += if guard { "}\n}\n" } else { "}\n" };
    }
    // The matrix in halves, two of them a row.
    let halves = columns * 2;
    for piece in 0..halves.div_ceil(threads) {
        let guard = halves < (piece + 1) * threads;
        body += &format!(
            "{{ let i = local + {}u;\n{}let r = i / 2u;\n",
            piece * threads,
            if guard { format!("if i < {halves}u {{\n") } else { String::new() },
        );
        body += &weights.load("v", "min(n0 + r, p.n - 1u) * p.halves + h + i % 2u");
        for j in 0..4 {
            body += &format!("let d{j} = vec4<f16>({});\n", weights.decoded("v", j));
            body += &store("wt", &format!("r * {stride}u + i % 2u * 16u + {}u", 4 * j), &format!("d{j}"));
        }
        body += if guard { "}\n}\n" } else { "}\n" };
    }
    body += "workgroupBarrier();\n";
    let pitch = stride / unit;
    for k in (0..DEPTH).step_by(side) {
        let at = |row: &str, k: usize| format!("({row}) * {pitch}u + {}u", k / unit);
        body += "{\n";
        for i in 0..tiles.each[0] {
            let at = at(&format!("sm + {}u", i * side), k);
            body += &format!("let a{i} = coopLoadT<{}>(&xt[{at}], {pitch}u);\n", kind("A", "f16"));
        }
        for j in 0..tiles.each[1] {
            let at = at(&format!("sn + {}u", j * side), k);
            body += &format!("let b{j} = coopLoad<{}>(&wt[{at}], {pitch}u);\n", kind("B", "f16"));
            for i in 0..tiles.each[0] {
                body += &format!("c{i}_{j} = coopMultiplyAdd(a{i}, b{j}, c{i}_{j});\n");
            }
        }
        body += "}\n";
    }
    body += "workgroupBarrier();\n}\n";
    let width = tiles.each[1] * side;
    for first in (0..tiles.each[0]).step_by(at_once) {
        for i in 0..at_once {
            for j in 0..tiles.each[1] {
                let at = i * side * width + j * side;
                body += &format!("coopStoreT(c{}_{j}, &out[sub * {area}u + {at}u], {width}u);\n", first + i);
            }
        }
        body += &format!(
            "workgroupBarrier();
for (var e = lane; e < {area}u; e += lanes) {{
let t = m0 + sm + {}u + e / {width}u;
let n = n0 + sn + e % {width}u;
if t < p.rows && n < p.n {{ finish(t, p.first + n, out[sub * {area}u + e]); }}
}}
workgroupBarrier();\n",
            first * side,
        );
    }
    s.build(&body)
}

/// Rounds inputs to half precision, each row scaled so that nothing overflows. Bindings: x, y, scales.
/// Words: `halves`, `k`. Grid: 1, rows.
pub fn to_half() -> Shader {
    let mut s = Source::new("to_half", 256);
    s.enable("f16");
    s.read("x", "f32");
    s.write("y", "vec4<f16>");
    s.write("scales", "f32");
    s.words("u32", &["halves", "k"]);
    s.shared("partial", "array<f32, 256>");
    let mut body = String::from(
        "let row = group.y * p.k;
var most = 0.0;
for (var i = local; i < p.k; i += 256u) { most = max(most, abs(x[row + i])); }
partial[local] = most;\n",
    );
    for width in [128, 64, 32, 16, 8, 4, 2, 1] {
        body += &format!(
            "workgroupBarrier();
if local < {width}u {{ partial[local] = max(partial[local], partial[local + {width}u]); }}\n"
        );
    }
    body += "workgroupBarrier();
let scale = max(partial[0], 1e-20) / 256.0;
if local == 0u { scales[group.y] = scale; }
for (var i = local; i < p.halves * 4u; i += 256u) {
var v = vec4<f32>(0.0);
for (var c = 0u; c < 4u; c += 1u) { if i * 4u + c < p.k { v[c] = x[row + i * 4u + c] / scale; } }
y[group.y * p.halves * 4u + i] = vec4<f16>(v);
}";
    s.build(&body)
}
