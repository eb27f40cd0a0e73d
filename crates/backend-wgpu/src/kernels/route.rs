//! Choice of experts: each invocation counts how many beat its own.

use super::chain::NO_NUMBER;
use crate::shader::{Shader, Source};
use nibble_graph::{Route, Scoring};

const THREADS: u32 = 128;

/// Bindings: logits, bias if there is one, y. Grid: 1, rows.
pub fn route(r: &Route, experts: usize, bias: bool) -> Shader {
    let mut s = Source::new("route", THREADS);
    s.read("logits", "f32");
    if bias {
        s.read("bias", "f32");
    }
    s.write("y", "f32");
    let used = r.used;
    let mut body = format!("let row = group.y * {experts}u;\n");
    body += &choose(&mut s, r, bias, THREADS, (experts, &format!("{experts}u")));
    body += &format!(
        "let out = group.y * {}u;
for (var i = local; i < {used}u; i += {THREADS}u) {{
y[out + i] = weight(i);
y[out + {used}u + i] = f32(ids[i]);
}}",
        2 * used
    );
    s.build(&body)
}

/// `unless_none(v, x, y)`: `x` where `v` is a number, else `y`.
const UNLESS_NONE: &str = "fn unless_none(v: vec4<f32>, x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
let a = vec2<f32>(select(x.x, y.x, no_number(v.x)), select(x.y, y.y, no_number(v.y)));
return vec4<f32>(a, select(x.z, y.z, no_number(v.z)), select(x.w, y.w, no_number(v.w)));
}";

/// Statements by which the invocations of a workgroup choose among `count` experts (an expression; there is `room` for them) by
/// the logits from `row` on. They leave the chosen ones in `ids`, the best first, and their weights for `weight(i)`.
pub fn choose(s: &mut Source, r: &Route, bias: bool, threads: u32, (room, count): (usize, &str)) -> String {
    let used = r.used;
    // An invocation writes whole vectors: nobody else's numbers are in them.
    for name in ["score", "rank"] {
        s.shared(name, "vec4<f32>", room.div_ceil(4));
    }
    s.shared("ids", "u32", used);
    s.shared("chosen", "f32", used);
    // Shares that are made to add up to one need nothing but the chosen logits, and logits order experts as shares do.
    let by_logits = r.scoring == Scoring::Softmax && r.normalize && !bias;
    let share = |i: &str| match by_logits {
        true => format!("exp(chosen[{i}] - chosen[0])"),
        false => format!("chosen[{i}]"),
    };
    let sum = match r.normalize {
        true => (0..used).map(|i| share(&i.to_string())).collect::<Vec<_>>().join(" + "),
        false => "1.0".into(),
    };
    let own = share("i");
    s.item(&format!("fn weight(i: u32) -> f32 {{ return {own} / ({sum}) * f32({:?}); }}", r.scale));
    let fours = format!("({count} + 3u) / 4u");
    let each = format!("for (var i = local; i < fours; i += {threads}u)");
    // Four of an array, `none` where there are no experts.
    let four = |name: &str, at: &str, none: &str| {
        let one = |c: u32| {
            let e = format!("i * 4u + {c}u");
            format!("select({none}, {name}[{at}min({e}, {count} - 1u)], {e} < {count})")
        };
        format!("vec4<f32>({}, {}, {}, {})", one(0), one(1), one(2), one(3))
    };
    s.item(NO_NUMBER);
    s.item(UNLESS_NONE);
    let mut text = format!("let fours = {fours};\n");
    match r.scoring {
        Scoring::Sigmoid => {
            text += &format!(
                "{each} {{
let logit = {};
let share = 1.0 / (1.0 + exp(clamp(-logit, vec4<f32>(-80.0), vec4<f32>(80.0))));
score[i] = unless_none(logit, share, logit);
}}\n",
                four("logits", "row + ", "0.0")
            );
        }
        Scoring::Softmax if by_logits => {
            text += &format!("{each} {{ score[i] = {}; }}\n", four("logits", "row + ", NONE));
        }
        Scoring::Softmax => {
            text += &format!(
                "{each} {{ rank[i] = {logits}; }}
workgroupBarrier();
var best = vec4<f32>({NONE});
for (var i = 0u; i < fours; i += 1u) {{ best = max(best, rank[i]); }}
let most = max(max(best.x, best.y), max(best.z, best.w));
{each} {{ score[i] = exp(rank[i] - most); }}
workgroupBarrier();
var sums = vec4<f32>(0.0);
for (var i = 0u; i < fours; i += 1u) {{ sums += score[i]; }}
let total = sums.x + sums.y + sums.z + sums.w;
workgroupBarrier();
{each} {{ score[i] = score[i] / total; }}\n",
                logits = four("logits", "row + ", NONE),
            );
        }
    }
    let mut ranked = String::from("score[i]");
    if bias {
        ranked += &format!(" + {}", four("bias", "", "0.0"));
    }
    let there = |c: u32| {
        format!("select({NONE}, ranks.{}, i * 4u + {c}u < {count})", ["x", "y", "z", "w"][c as usize])
    };
    let places: String = (0..4)
        .map(|c| format!("place += u32(other[{c}] > own || (other[{c}] == own && i * 4u + {c}u < e));\n"))
        .collect();
    text + &format!(
        "{each} {{
let found = {ranked};
// What is no number comes first, so that its expert shows it; and ranks order all experts.
let ranks = unless_none(found, max(found, vec4<f32>({NONE})), vec4<f32>({BEST}));
rank[i] = vec4<f32>({}, {}, {}, {});
}}
workgroupBarrier();
for (var e = local; e < {count}; e += {threads}u) {{
let own = rank[e / 4u][e % 4u];
var place = 0u;
for (var i = 0u; i < fours; i += 1u) {{
let other = rank[i];
{places}}}
if place < {used}u {{ chosen[place] = score[e / 4u][e % 4u]; ids[place] = e; }}
}}
workgroupBarrier();\n",
        there(0),
        there(1),
        there(2),
        there(3),
    )
}

/// Below every logit and every rank.
const NONE: &str = "-3e38";

/// Above every rank.
const BEST: &str = "3e38";
