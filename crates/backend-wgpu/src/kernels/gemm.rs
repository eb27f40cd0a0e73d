//! Matrix times many rows, tile by tile: by cooperative matrices in half precision with sums in 32 bits, or in registers.

use super::{chain::Link, ends::outputs, gemv::Choice, group::NOBODY, weights::Weights};
use crate::{
    form::Form,
    selfcheck::{Product, ToHalf},
    shader::{Shader, Source},
};

/// Numbers of the sum that are in workgroup memory at once.
const DEPTH: usize = 32;

/// Results of the register kernel's tile; its 256 invocations make 4 by 4 results each, or fewer rows of them.
pub const REGISTER_TILE: usize = 64;

/// How a tile finds its rows and its matrix.
struct Place {
    /// Statements that leave the tile's first row in `m0`, for experts the first row of their matrix in `start`.
    begin: String,
    choice: Choice,
}

impl Place {
    /// For tiles of `height` rows. With experts it declares the tiles and the order of [`super::group`], and the word `each`
    /// (rows of an expert's matrix).
    fn declare(s: &mut Source, choice: Choice, height: usize) -> Self {
        let mut begin = String::new();
        if let Choice::Experts { used, own } = choice {
            s.read("tiles", "u32");
            s.read("order", "u32");
            s.words("u32", &["each"]);
            let row = if own { "entry".into() } else { format!("entry / {used}u") };
            s.item(&format!(
                "fn source(entry: u32) -> u32 {{ return select({row}, 0u, entry == {NOBODY}u); }}"
            ));
            begin = String::from(
                "if group.y >= tiles[0] { return; }
let skip = tiles[1u + group.y] * p.each;
let start = skip - p.first;
// Experts of another part of the stack, before this one too: numbers below 0 are large.
if start >= p.n { return; }\n",
            );
        }
        begin += &format!("let m0 = group.y * {height}u;\n");
        Self { begin, choice }
    }

    /// The row of x that the tile's row `i` is; any one where there is none.
    fn row(&self, i: &str) -> String {
        match self.choice {
            Choice::All => format!("min(m0 + {i}, p.rows - 1u)"),
            _ => format!("source(order[m0 + {i}])"),
        }
    }

    /// The row of the matrix for result `n`.
    fn result(&self, n: &str) -> String {
        match self.choice {
            Choice::All => format!("min({n}, p.n - 1u)"),
            _ => format!("start + min({n}, p.each - 1u)"),
        }
    }

    /// Statements that end the tile's row `i`, result `n`, with `value`.
    fn finish(&self, i: &str, n: &str, value: &str) -> String {
        match self.choice {
            Choice::All => format!(
                "let t = m0 + {i};\nlet n = {n};\nif t < p.rows && n < p.n {{ _ = finish(t, p.first + n, {value}); }}"
            ),
            _ => format!(
                "let t = order[m0 + {i}];\nlet n = {n};\nif t != {NOBODY}u && n < p.each {{ _ = finish(t, n, {value}); }}"
            ),
        }
    }
}

/// Bindings: x (f32), planes, for experts tiles and order, outputs with operands. Words: `n`, `first`, `halves`, `k`, factor,
/// for experts `each`, widths. Grid: `n / 64`, rows / `16 * tall`.
pub fn registers(form: &Form, products: &[Vec<Link>], choice: Choice, tall: usize) -> Shader {
    let rows = 16 * tall;
    let mut s = Source::new(format!("gemm {} {rows}x{REGISTER_TILE}", form.describe()), 256);
    s.read("x", "f32");
    s.words("u32", &["n", "first", "halves", "k"]);
    let weights = Weights::declare(&mut s, form, "a");
    let place = Place::declare(&mut s, choice, rows);
    outputs(&mut s, products, "");
    let [x_side, side] = [rows, REGISTER_TILE].map(|side| side + 4);
    s.shared("xs", "f32", DEPTH * x_side);
    s.shared("ws", "f32", DEPTH * side);
    let mut body = place.begin.clone();
    body += "let n0 = group.x * 64u;\nlet tx = local % 16u;\nlet ty = local / 16u;\n";
    for (i, j) in (0..tall).flat_map(|i| (0..4).map(move |j| (i, j))) {
        body += &format!("var s{i}{j} = 0.0;\n");
    }
    // x: rows of 32 numbers, 2 for each of their invocations' rows.
    let (share, per_row) = (2 * tall, DEPTH / (2 * tall));
    body += &format!("let xr = local / {per_row}u;\nlet xk = local % {per_row}u * {share}u;\n");
    body += &format!("let row = ({}) * p.k;\n", place.row("xr"));
    body += "for (var h = 0u; h < p.halves; h += 2u) {\n";
    for c in 0..share {
        let k = format!("h * 16u + xk + {c}u");
        body += &format!(
            "xs[(xk + {c}u) * {x_side}u + xr] = select(0.0, x[row + min({k}, p.k - 1u)], {k} < p.k);\n"
        );
    }
    // The matrix: 64 rows of two halves, an invocation for as many rows as are read at once.
    let once = weights.at_once();
    body += &format!("if local < {}u {{\nlet wr = local / 2u * {once}u;\nlet wh = local % 2u;\n", 128 / once);
    body += &weights.row("r", &place.result("n0 + wr"));
    let names: Vec<_> = ["v", "w"][..once].iter().map(|v| v.to_string()).collect();
    body += &weights.load(&names, "r", "(h + wh)");
    for (i, v) in names.iter().enumerate() {
        body += &format!("{{\nlet wn = {};\n", weights.result(&format!("(wr + {i}u)")));
        for j in 0..4 {
            body += &format!("let d{j} = {};\n", weights.decoded(v, j));
            for c in 0..4 {
                body += &format!("ws[(wh * 16u + {}u) * {side}u + wn] = d{j}[{c}];\n", j * 4 + c);
            }
        }
        body += "}\n";
    }
    body += "}\nworkgroupBarrier();\n";
    body += &format!("for (var k = 0u; k < {DEPTH}u; k += 1u) {{\n");
    for i in 0..tall {
        body += &format!("let a{i} = xs[k * {x_side}u + ty * {tall}u + {i}u];\n");
    }
    for j in 0..4 {
        body += &format!("let b{j} = ws[k * {side}u + tx * 4u + {j}u];\n");
    }
    for (i, j) in (0..tall).flat_map(|i| (0..4).map(move |j| (i, j))) {
        body += &format!("s{i}{j} += a{i} * b{j};\n");
    }
    body += "}\nworkgroupBarrier();\n}\n";
    let count = 4 * tall;
    let sums: Vec<_> = (0..count).map(|e| format!("s{}{}", e / 4, e % 4)).collect();
    body += &format!(
        "var sums = array<f32, {count}>({});\nfor (var e = 0u; e < {count}u; e += 1u) {{\n{}\n}}",
        sums.join(", "),
        place.finish(&format!("ty * {tall}u + e / 4u"), "n0 + tx * 4u + e % 4u", "sums[e]"),
    );
    s.build(&body).with(Product::many(form, products, choice, [rows, REGISTER_TILE], false))
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
    /// Bytes of workgroup memory.
    pub workgroup: usize,
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

/// Bindings: x (from [`to_half`]), the scale of each row, then as [`registers`]. Words and grid as there, with the size of the
/// tiles.
pub fn cooperative(form: &Form, products: &[Vec<Link>], choice: Choice, tiles: &Tiles) -> Shader {
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
    let place = Place::declare(&mut s, choice, rows);
    let scale = match choice {
        Choice::All => "xs[t]",
        _ => "xs[source(t)]",
    };
    outputs(&mut s, products, &format!("v *= {scale} * {};\n", weights.halves_factor()));

    // Padding keeps rows apart in the banks of workgroup memory.
    let stride = DEPTH + 8;
    let (unit, element) = if tiles.vectors { (4, "vec4<f16>") } else { (1, "f16") };
    let [x_len, w_len] = [rows, columns].map(|side| side * stride);
    let side = tiles.side;
    let subs = tiles.subs[0] * tiles.subs[1];
    // Results leave by way of workgroup memory, as many matrices of a row at once as it has room for.
    let room = |buffers: usize| tiles.workgroup.saturating_sub(2 * buffers * (x_len + w_len));
    let fit = |buffers: usize| {
        let most = room(buffers) / (4 * side * side * subs);
        (1..=tiles.each[1].min(most)).rev().find(|n| tiles.each[1].is_multiple_of(*n))
    };
    // Two buffers: the next tile is written while this one is multiplied.
    let (buffers, at_once) = fit(2).map_or((1, fit(1).unwrap_or(1)), |n| (2, n));
    let area = side * side * at_once;
    s.shared("xt", element, buffers * x_len / unit);
    s.shared("wt", element, buffers * w_len / unit);
    s.shared("out", "f32", subs * area);
    let store = |array: &str, at: &str, value: &str| -> String {
        if tiles.vectors {
            return format!("{array}[({at}) / 4u] = {value};\n");
        }
        (0..4).map(|c| format!("{array}[{at} + {c}u] = ({value})[{c}];\n")).collect()
    };
    let mut body = place.begin.clone();
    body += &format!(
        "let n0 = group.x * {columns}u;\nlet sm = sub / {0}u * {1}u;\nlet sn = sub % {0}u * {2}u;\n",
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
    // x in pieces of four numbers, eight of them a row; the matrix in halves, two of them a row.
    let pieces = Pieces { count: rows * DEPTH / 4, threads };
    let once = weights.at_once();
    let halves = Pieces { count: columns * 2 / once, threads };
    let mut fetch = String::new();
    let mut fill = String::new();
    pieces.each(|i, at, open, close| {
        let row = place.row(&format!("{at} / 8u"));
        body += &format!("let xr{i} = ({row}) * p.halves * 4u + {at} % 8u;\nvar xv{i}: vec4<f16>;\n");
        fetch += &format!("xv{i} = x[xr{i} + next * 4u];\n");
        let at = format!("{at} / 8u * {stride}u + {at} % 8u * 4u + to * {x_len}u");
        fill += &format!("{open}{}{close}", store("xt", &at, &format!("xv{i}")));
    });
    halves.each(|i, piece, open, close| {
        let vs: Vec<_> = (0..once).map(|r| format!("w{i}_{r}_")).collect();
        let row = format!("{piece} / 2u * {once}u");
        body += &weights.row(&format!("wr{i}"), &place.result(&format!("n0 + {row}")));
        body += &weights.declare_words(&vs[0]);
        fetch += &weights.fetch(&vs[0], &format!("wr{i}"), &format!("({piece} % 2u + next)"));
        fill += &format!("{open}{{\n{}", weights.unpack(&vs));
        for (r, v) in vs.iter().enumerate() {
            fill += &weights.halves(v);
            let row = weights.result(&format!("({row} + {r}u)"));
            for j in 0..4 {
                let at = format!("{row} * {stride}u + {piece} % 2u * 16u + {}u + to * {w_len}u", 4 * j);
                fill += &store("wt", &at, &format!("{v}h{j}"));
            }
        }
        fill += &format!("}}\n{close}");
    });
    body += &format!("var next = 0u;\nvar to = 0u;\n{fetch}{fill}workgroupBarrier();\n");
    body += "for (var h = 0u; h < p.halves; h += 2u) {\nlet here = to;\n";
    // The last tile comes once more, for nobody: between branches nothing can be stored while matrices are multiplied.
    body += &format!("next = min(h + 2u, p.halves - 2u);\n{fetch}");
    let pitch = stride / unit;
    for k in (0..DEPTH).step_by(side) {
        let at =
            |row: &str, len: usize| format!("({row}) * {pitch}u + {}u + here * {}u", k / unit, len / unit);
        body += "{\n";
        for i in 0..tiles.each[0] {
            let at = at(&format!("sm + {}u", i * side), x_len);
            body += &format!("let a{i} = coopLoadT<{}>(&xt[{at}], {pitch}u);\n", kind("A", "f16"));
        }
        for j in 0..tiles.each[1] {
            let at = at(&format!("sn + {}u", j * side), w_len);
            body += &format!("let b{j} = coopLoad<{}>(&wt[{at}], {pitch}u);\n", kind("B", "f16"));
            for i in 0..tiles.each[0] {
                body += &format!("c{i}_{j} = coopMultiplyAdd(a{i}, b{j}, c{i}_{j});\n");
            }
        }
        body += "}\n";
    }
    body += if buffers == 2 { "to = 1u - here;\n" } else { "workgroupBarrier();\n" };
    body += &format!("{fill}workgroupBarrier();\n}}\n");
    let width = at_once * side;
    for (i, first) in
        (0..tiles.each[0]).flat_map(|i| (0..tiles.each[1]).step_by(at_once).map(move |j| (i, j)))
    {
        for j in 0..at_once {
            let at = j * side;
            body += &format!("coopStoreT(c{i}_{}, &out[sub * {area}u + {at}u], {width}u);\n", first + j);
        }
        body += &format!(
            "workgroupBarrier();\nfor (var e = lane; e < {area}u; e += lanes) {{\n{}\n}}\nworkgroupBarrier();\n",
            place.finish(
                &format!("sm + {}u + e / {width}u", i * side),
                &format!("n0 + sn + {}u + e % {width}u", first * side),
                &format!("out[sub * {area}u + e]"),
            )
        );
    }
    s.build(&body).with(Product::many(form, products, choice, tiles.size(), true))
}

/// Pieces of a tile, shared out among invocations.
struct Pieces {
    count: usize,
    threads: usize,
}

impl Pieces {
    /// Calls `work` for every piece of an invocation: its number, an expression of its place in the tile, and what guards
    /// a write if not every invocation has it.
    fn each(&self, mut work: impl FnMut(usize, &str, &str, &str)) {
        for i in 0..self.count.div_ceil(self.threads) {
            let place = format!("(local + {}u)", i * self.threads);
            if self.count < (i + 1) * self.threads {
                work(i, &place, &format!("if {place} < {}u {{\n", self.count), "}\n");
            } else {
                work(i, &place, "", "");
            }
        }
    }
}

/// Rounds inputs to half precision, each row scaled so that nothing overflows; four numbers in the order 0, 2, 1, 3, as
/// matrices come ([`Weights::halves`]). Bindings: x, y, scales.
/// Words: `halves`, `k`. Grid: 1, rows.
pub fn to_half() -> Shader {
    let mut s = Source::new("to_half", 256);
    s.enable("f16");
    s.read("x", "f32");
    s.write("y", "vec4<f16>");
    s.write("scales", "f32");
    s.words("u32", &["halves", "k"]);
    s.shared("partial", "f32", 256);
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
y[group.y * p.halves * 4u + i] = vec4<f16>(v.xzyw);
}";
    s.build(&body).with(ToHalf)
}
