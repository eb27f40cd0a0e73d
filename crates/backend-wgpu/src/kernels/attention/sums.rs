//! Weighted sums of values, and who makes which.

use super::{AT_ONCE, ROOM, THREADS, UNITS, component, numbers, scale_of, sink};
use crate::{
    kernels::kv::{Bank, PAGE},
    shader::Source,
};
use nibble_graph::Attention;

/// Weighted sums of values: who makes which.
pub struct Sums {
    /// Heads, numbers of a value, words of a value.
    heads: usize,
    dim: u32,
    words: u32,
    /// Words read at once, and numbers in a word.
    unit: u32,
    per_word: usize,
    /// Units that an invocation takes of a value.
    each: u32,
    /// Invocations beside one another that take all of a value.
    columns: u32,
    /// How many such, each with its share of a page's positions.
    groups: u32,
    /// Heads whose sums fit into workgroup memory together.
    at_once: u32,
}

impl Sums {
    pub fn new(bank: &Bank, heads: usize) -> Self {
        let ([_, words], unit) = (bank.row_words(), bank.value_unit());
        let units = words / unit;
        let each = units.div_ceil(THREADS);
        let columns = units.div_ceil(each);
        let groups = 1 << (THREADS / columns).ilog2().min(4);
        let padded = words * bank.per_word as u32;
        let at_once = (ROOM / 4 / (groups * padded)).clamp(1, heads as u32);
        Self {
            heads,
            dim: bank.layer.value_dim as u32,
            words,
            unit,
            per_word: bank.per_word,
            each,
            columns,
            groups,
            at_once,
        }
    }

    /// Numbers of a value, filled up to whole words.
    fn padded(&self) -> u32 {
        self.words * self.per_word as u32
    }

    pub fn share(&self, s: &mut Source) {
        s.shared("sum_of", "f32", (self.groups * self.at_once * self.padded()) as usize);
    }

    /// Names of an invocation's sums of a head, in order.
    fn names(&self, head: usize) -> Vec<String> {
        let numbers = self.each * self.unit * self.per_word as u32;
        (0..numbers).map(|n| format!("o{head}_{n}")).collect()
    }

    pub fn declare(&self) -> String {
        (0..self.heads).flat_map(|i| self.names(i)).map(|name| format!("var {name} = 0.0;\n")).collect()
    }

    pub fn scale(&self, head: usize, by: &str) -> String {
        self.names(head).iter().map(|name| format!("{name} *= {by};\n")).collect()
    }

    /// Adds a page's values.
    pub fn add(&self, bank: &Bank) -> String {
        let [_, value_page] = bank.page_words();
        let (unit, columns, groups) = (self.unit, self.columns, self.groups);
        let positions = PAGE / groups;
        let at_once = AT_ONCE.min(positions);
        let mut text = format!(
            "let value_at = (page * {value_page}u + kv_head * {head}u) / {unit}u;
let value_scales = page * {value_page}u + kv_head * {head}u + {codes}u;
let last = min({PAGE}u, end - at * {PAGE}u) - 1u;
let column = local % {columns}u;
let share = local / {columns}u;
if share < {groups}u {{
for (var j = 0u; j < {positions}u; j += {at_once}u) {{\n",
            head = bank.head_words()[1],
            codes = self.words * PAGE,
        );
        let units = self.words / unit;
        for j in 0..at_once {
            text += &format!(
                "let j{j} = share * {positions}u + j + {j}u;\nlet l{j} = min(j{j}, last);\nlet p{j} = l{j} * {units}u;\n"
            );
            for w in 0..self.each {
                let column = format!("min(column + {}u, {}u)", w * columns, units - 1);
                text += &format!("let v{j}_{w} = values[value_at + p{j} + {column}];\n");
                if bank.is_blocks() {
                    let block = format!("{column} / {UNITS}u");
                    let scale = scale_of("values", unit, &format!("value_scales + l{j}"), &block);
                    text += &format!("let d{j}_{w} = {scale};\n");
                }
            }
        }
        for j in 0..at_once {
            for i in 0..self.heads as u32 {
                text += &format!("let w{j}_{i} = weight[{}u + j{j}];\n", i * THREADS);
            }
            let mut n = 0;
            for w in 0..self.each {
                for i in 0..self.heads {
                    let scale = if bank.is_blocks() { format!(" * d{j}_{w}") } else { String::new() };
                    text += &format!("let w{j}_{i}_{w} = w{j}_{i}{scale};\n");
                }
                for c in 0..unit {
                    let name = format!("n{j}_{w}_{c}");
                    text += &numbers(&name, &format!("v{j}_{w}{}", component(unit, c)), self.per_word);
                    for h in 0..self.per_word {
                        for i in 0..self.heads {
                            text += &format!("o{i}_{n} = fma(w{j}_{i}_{w}, {name}_{h}, o{i}_{n});\n");
                        }
                        n += 1;
                    }
                }
            }
        }
        text + "}\n}\n"
    }

    /// Brings the sums of all invocations together: `each` is done with `value`, for `head` and number `d` of a value. It is
    /// given the name of a variable that is its own.
    fn gather(&self, each: impl Fn(&str) -> String) -> String {
        self.visit(true, each)
    }

    /// [`Self::gather`], or only its numbers in the same order.
    fn visit(&self, gather: bool, each: impl Fn(&str) -> String) -> String {
        let (padded, numbers) = (self.padded(), self.unit * self.per_word as u32);
        let mut text = format!("let column = local % {0}u;\nlet share = local / {0}u;\n", self.columns);
        for first in (0..self.heads as u32).step_by(self.at_once as usize) {
            let count = self.at_once.min(self.heads as u32 - first);
            text += &format!("workgroupBarrier();\nif share < {}u {{\n", self.groups);
            for i in (0..count).filter(|_| gather) {
                for (n, name) in self.names((first + i) as usize).iter().enumerate() {
                    let (w, c) = (n as u32 / numbers, n as u32 % numbers);
                    let column = format!("column + {}u", w * self.columns);
                    let at = format!(
                        "(share * {}u + {i}u) * {padded}u + ({column}) * {numbers}u + {c}u",
                        self.at_once
                    );
                    let guard = if self.each > 1 {
                        format!("if {column} < {}u ", self.words / self.unit)
                    } else {
                        String::new()
                    };
                    text += &format!("{guard}{{ sum_of[{at}] = {name}; }}\n");
                }
            }
            text += "}\nworkgroupBarrier();\n";
            let (len, dim) = (count * self.dim, self.dim);
            for round in 0..len.div_ceil(THREADS) {
                text += &format!(
                    "{{ let e = local + {}u;
if e < {len}u {{
let head = {first}u + e / {dim}u;
let d = e % {dim}u;
let source = e / {dim}u * {padded}u + d;
var value = 0.0;\n",
                    round * THREADS
                );
                for share in (0..self.groups).filter(|_| gather) {
                    text += &format!("value += sum_of[source + {}u];\n", share * self.at_once * padded);
                }
                text += &each(&format!("joined{first}_{round}"));
                text += "}\n}\n";
            }
        }
        text
    }

    /// Names of what an invocation holds of joined sums, as [`Self::gather`] gives them.
    fn joined(&self) -> Vec<String> {
        let heads = self.heads as u32;
        let rounds = |first: u32| ((heads - first).min(self.at_once) * self.dim).div_ceil(THREADS);
        let chunks = (0..heads).step_by(self.at_once as usize);
        chunks
            .flat_map(|first| (0..rounds(first)).map(move |round| format!("joined{first}_{round}")))
            .collect()
    }

    pub fn declare_joined(&self) -> String {
        let mut text: String = self.joined().iter().map(|name| format!("var {name} = 0.0;\n")).collect();
        for i in 0..self.heads {
            text += &format!("var all_most{i} = -1e30;\nvar all_total{i} = 0.0;\n");
        }
        text
    }

    /// Joins the run in hand to those before it.
    pub fn merge(&self) -> String {
        let mut text = String::new();
        for i in 0..self.heads {
            text += &format!(
                "{{ let next = max(all_most{i}, most{i});
let keep = exp(all_most{i} - next);
let weight = exp(most{i} - next);
all_most{i} = next;
all_total{i} = merge(all_total{i}, keep, total{i}, weight);
if local == 0u {{ most_of[{at}u] = keep; total_of[{at}u] = weight; }} }}\n",
                at = i * 16
            );
        }
        text + &self.gather(|name| {
            format!("{name} = merge({name}, most_of[head * 16u], value, total_of[head * 16u]);\n")
        })
    }

    /// Leaves a run's sums, maximum and total.
    pub fn store_run(&self, a: &Attention) -> String {
        let row = format!("(group.y * {}u + first_head", a.heads);
        let mut text = String::from("if local == 0u {\n");
        for i in 0..self.heads {
            text += &format!("stats[{row} + {i}u) * p.runs + group.z] = vec2<f32>(most{i}, total{i});\n");
        }
        text + "}\n"
            + &self.gather(|_| {
                format!("sums[({row} + head) * p.runs + group.z) * {}u + d] = value;\n", self.dim)
            })
    }

    /// Leaves the result.
    pub fn store(&self, a: &Attention, joined: bool, sinks: bool) -> String {
        let mut text = String::from("workgroupBarrier();\nif local == 0u {\n");
        let [total, most] = if joined { ["all_total", "all_most"] } else { ["total", "most"] };
        for i in 0..self.heads {
            let sink = sink(sinks, &format!("first_head + {i}u"), &format!("{most}{i}"));
            text += &format!("total_of[{}u] = {total}{i}{sink};\n", i * 16);
        }
        text += "}\n";
        text + &self.visit(!joined, |name| {
            let value = if joined { name } else { "value" };
            let at = format!("(group.y * {}u + first_head + head) * {}u + d", a.heads, self.dim);
            format!("sums[{at}] = {value} / total_of[head * 16u];\n")
        })
    }
}
