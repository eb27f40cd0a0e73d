//! A plan with another one beside it that knows better: every weight's result and every layer's is compared, step by step.
//!
//! The second plan has keys, values and states of its own, so what the first one does to them shows in later steps too.

use nibble_backend::{Activations, Counts, Error, KvType, Limits, Memory, Plan, Step, Tracer};
use nibble_backend_reference::scores;
use nibble_graph::{Graph, Node, Op, Route, Rows, Value};
use std::sync::Arc;

/// How far a number may be off, relative to the largest of its row, where nothing but weights is rounded.
const EXACT: f32 = 2e-3;

/// The same where inputs of products, or keys and values, are rounded: not alike on all devices.
const ROUNDED: f32 = 0.25;

/// How far apart two experts may be, relative to the best of their row, that one side prefers to the other and one not: where
/// nothing but weights is rounded, and where inputs of products are too.
const TIES: [f32; 2] = [1e-4, 0.05];

/// An output that is compared.
struct Watched {
    output: usize,
    what: String,
    rows: Rows,
    width: usize,
    choice: Option<Choice>,
}

/// A choice of experts.
struct Choice {
    route: Route,
    /// The output that it is made by.
    logits: usize,
    experts: usize,
    bias: Vec<f32>,
}

impl Choice {
    /// What experts are chosen by.
    fn ranks(&self, logits: &[f32]) -> Vec<f64> {
        let mut ranks = scores(logits, self.route.scoring);
        ranks.iter_mut().zip(&self.bias).for_each(|(rank, bias)| *rank += f64::from(*bias));
        ranks
    }

    /// How far experts that were found are from those that are expected in their places, relative to the best one, if the ones
    /// found are a choice at all. Both are in the order of their ranks.
    fn gap(&self, found: &[f32], expected: &[f32], logits: &[f32]) -> Option<f32> {
        let ranks = self.ranks(logits);
        let best = ranks.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        let mut widest = 0f64;
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            let known = f.fract() == 0.0 && (0.0..ranks.len() as f32).contains(f);
            if !known || found[..i].contains(f) {
                return None;
            }
            widest = widest.max((ranks[*f as usize] - ranks[*e as usize]).abs());
        }
        Some((widest / best) as f32)
    }
}

/// Two plans of one graph. The first one answers.
pub struct Checked {
    plan: Box<dyn Plan>,
    other: Box<dyn Plan>,
    /// In the order in which they are made.
    watched: Vec<Watched>,
    bound: f32,
    tie: f32,
    found: Vec<f32>,
    expected: Vec<f32>,
    logits: Vec<f32>,
    /// Rows of the step in which the two chose other experts.
    apart: Vec<bool>,
    /// Who is told of these.
    warn: Option<fn(&str)>,
}

/// `graph` with an output more for every weight's result, every layer's, and every choice of experts.
pub fn tapped(graph: &Graph) -> Graph {
    let mut tapped = graph.clone();
    let taps = tapped.tap();
    tapped.outputs.clone_from(&graph.outputs);
    let choices = graph.nodes.iter().enumerate().filter(|(_, node)| matches!(node.op, Op::Route(_)));
    let choices = choices.flat_map(|(i, node)| [node.inputs[0], Value(i as u32)]);
    for value in taps.iter().map(|tap| tap.value).chain(choices) {
        if !tapped.outputs.contains(&value) {
            tapped.outputs.push(value);
        }
    }
    tapped
}

impl Checked {
    /// `plan`, checked by `other`; both are of `graph`, which is [`tapped`].
    pub fn new(graph: &Graph, plan: Box<dyn Plan>, other: Box<dyn Plan>, warn: Option<fn(&str)>) -> Self {
        let mut values: Vec<_> = graph.outputs.iter().copied().enumerate().collect();
        values.sort_by_key(|&(_, value)| value);
        let choice = |node: &Node| {
            let Op::Route(route) = node.op else { return None };
            let logits = graph.outputs.iter().position(|&output| output == node.inputs[0])?;
            let bias = node.weights.first().map_or(vec![], |&w| graph.weight(w).data.decode());
            Some(Choice { route, logits, experts: graph.node(node.inputs[0]).width, bias })
        };
        let watch = |(output, value)| {
            let node = graph.node(value);
            let what = graph.label(&[value]).to_string();
            Watched { output, what, rows: node.rows, width: node.width, choice: choice(node) }
        };
        let watched: Vec<_> = values.into_iter().map(watch).collect();
        let widest = watched.iter().map(|w| w.width).max().unwrap_or(0);
        let Limits { kv, activations, rows, .. } = *plan.limits();
        let exact = kv == KvType::F32 && activations == Activations::F32;
        let (bound, tie) = if exact { (EXACT, TIES[0]) } else { (ROUNDED, TIES[1]) };
        let [found, expected, logits] = [(); 3].map(|()| vec![0.0; widest]);
        Self { plan, other, watched, bound, tie, found, expected, logits, apart: vec![false; rows], warn }
    }

    /// Compares what the last step made. Of a row in which the two choose other experts, because these are so close that rounding
    /// decides, nothing behind can be compared.
    fn compare(&mut self, step: &Step<'_>) -> Result<(), Error> {
        self.apart.fill(false);
        for i in 0..self.watched.len() {
            let rows = match self.watched[i].rows {
                Rows::Tokens => step.tokens.len(),
                Rows::Wanted => step.wanted.len(),
            };
            for row in 0..rows {
                let token = match self.watched[i].rows {
                    Rows::Tokens => row,
                    Rows::Wanted => step.wanted[row] as usize,
                };
                if self.apart[token] {
                    continue;
                }
                let watched = &self.watched[i];
                self.plan.read(watched.output, row, &mut self.found[..watched.width])?;
                self.other.read(watched.output, row, &mut self.expected[..watched.width])?;
                match self.verdict(i, row)? {
                    Verdict::Alike => {}
                    Verdict::Tie(gap) => {
                        self.apart[token] = true;
                        let (what, gap) = (&self.watched[i].what, 100.0 * gap);
                        let rest = "the rest of this row is not compared";
                        if let Some(warn) = self.warn {
                            warn(&format!(
                                "{what}: row {row} takes other experts, {gap:.2} % behind at most: {rest}"
                            ));
                        }
                    }
                    Verdict::Differs(column) => {
                        let (found, expected) = (self.found[column], self.expected[column]);
                        let what = self.watched[i].what.clone();
                        return Err(Error::Differs { what, row, column, expected, found });
                    }
                }
            }
        }
        Ok(())
    }

    /// What is to be said of a row of an output that both plans have read.
    fn verdict(&mut self, watched: usize, row: usize) -> Result<Verdict, Error> {
        let watched = &self.watched[watched];
        let [found, expected] = [&self.found, &self.expected].map(|numbers| &numbers[..watched.width]);
        let off = |column: Option<usize>| column.map_or(Verdict::Alike, Verdict::Differs);
        let Some(choice) = &watched.choice else { return Ok(off(difference(found, expected, self.bound))) };
        let used = choice.route.used;
        let Some(other) = (used..watched.width).find(|&i| found[i] != expected[i]) else {
            // Weights alone: numbers of experts say nothing of how large they are.
            return Ok(off(difference(&found[..used], &expected[..used], self.bound)));
        };
        let logits = &mut self.logits[..choice.experts];
        self.other.read(choice.logits, row, logits)?;
        let gap = choice.gap(&found[used..], &expected[used..], logits);
        Ok(gap.filter(|gap| *gap <= self.tie).map_or(Verdict::Differs(other), Verdict::Tie))
    }
}

/// What is to be said of a row.
enum Verdict {
    /// It is within the bound.
    Alike,
    /// It takes other experts, which are so far behind, relative to the best one.
    Tie(f32),
    /// This column is off.
    Differs(usize),
}

/// The first column that is off by more than `bound` of the largest number of its row.
fn difference(found: &[f32], expected: &[f32], bound: f32) -> Option<usize> {
    let most = bound * expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    let close = |f: f32, e: f32| (f - e).abs() <= most || f.to_bits() == e.to_bits();
    found.iter().zip(expected).position(|(&f, &e)| !close(f, e))
}

impl Plan for Checked {
    fn limits(&self) -> &Limits {
        self.plan.limits()
    }

    fn memory(&self) -> Memory {
        self.plan.memory()
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
        self.plan.run(step)?;
        self.other.run(step)?;
        self.compare(step)
    }

    fn modes(&self) -> Vec<&'static str> {
        self.plan.modes()
    }

    fn mode(&self) -> &'static str {
        self.plan.mode()
    }

    fn set_mode(&mut self, name: &str) -> Result<(), Error> {
        self.plan.set_mode(name)
    }

    fn device_memory(&self) -> Option<u64> {
        self.plan.device_memory()
    }

    fn counts(&self) -> Counts {
        self.plan.counts()
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        self.plan.read(output, row, into)
    }

    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        self.plan.trace(tracer);
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
        self.plan.copy_page(from, to)?;
        self.other.copy_page(from, to)
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
        self.plan.copy_state(from, to)?;
        self.other.copy_state(from, to)
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
        self.plan.clear_state(slot)?;
        self.other.clear_state(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Options};
    use nibble_backend::{Backend, PAGE_LEN, Sequence};
    use nibble_backend_cpu::{Cpu, CpuOptions};
    use nibble_backend_reference::Reference;

    /// A plan with one number wrong in what it says of an output.
    struct Wrong {
        plan: Box<dyn Plan>,
        output: usize,
        column: usize,
        by: f32,
    }

    impl Plan for Wrong {
        fn limits(&self) -> &Limits {
            self.plan.limits()
        }
        fn memory(&self) -> Memory {
            self.plan.memory()
        }
        fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
            self.plan.run(step)
        }
        fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
            self.plan.read(output, row, into)?;
            if output == self.output && row == 1 {
                into[self.column] += self.by;
            }
            Ok(())
        }
        fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
            self.plan.copy_page(from, to)
        }
        fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
            self.plan.copy_state(from, to)
        }
        fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
            self.plan.clear_state(slot)
        }
    }

    /// Runs two tokens of the story model on the CPU, checked by the reference backend, with one number changed.
    fn check(output: usize, by: f32) -> Result<(), Error> {
        let model = Model::builtin().unwrap();
        let options = Options {
            activations: Activations::F32,
            kv: KvType::F32,
            context: Some(PAGE_LEN),
            ..Options::default()
        };
        let (graph, limits) = (tapped(&model.graph), model.limits(&options));
        let cpu = Cpu::new(CpuOptions { threads: Some(1), ..CpuOptions::default() });
        let plan = cpu.compile(&graph, &limits).unwrap();
        let other = Reference.compile(&graph, &limits).unwrap();
        let wrong = Wrong { plan, output, column: 3, by };
        let mut checked = Checked::new(&graph, Box::new(wrong), other, None);
        checked.run(&Step {
            tokens: &[5, 6],
            positions: &[0, 1],
            sequence: &[0, 0],
            sequences: &[Sequence { pages: &[0], state: 0, prompt_len: 2 }],
            wanted: &[1],
        })
    }

    #[test]
    fn what_agrees_passes() {
        check(0, 0.0).unwrap();
    }

    #[test]
    fn the_first_wrong_value_is_named() {
        let graph = tapped(&Model::builtin().unwrap().graph);
        let output = graph.outputs.len() / 2;
        let error = check(output, 50.0).unwrap_err();
        let what = graph.label(&[graph.outputs[output]]).to_string();
        assert!(error.to_string().starts_with(&format!("{what}: expected ")), "{error}");
        assert!(matches!(error, Error::Differs { row: 1, column: 3, .. }), "{error}");
    }

    #[test]
    fn numbers_that_are_none_are_differences() {
        assert_eq!(difference(&[1.0, f32::NAN], &[1.0, 2.0], 0.25), Some(1));
        assert_eq!(difference(&[1.0, 2.4], &[1.0, 2.0], 0.25), None);
        assert_eq!(difference(&[f32::NEG_INFINITY], &[f32::NEG_INFINITY], 0.0), None);
    }

    #[test]
    fn other_experts_are_a_tie_only_if_they_are_close() {
        let route = Route { used: 2, scoring: nibble_graph::Scoring::Softmax, normalize: true, scale: 1.0 };
        let choice = Choice { route, logits: 0, experts: 4, bias: vec![] };
        let logits = [1.0, 3.0, 2.0, 1.99];
        let gap = |found: [f32; 2]| choice.gap(&found, &[1.0, 2.0], &logits);
        // The third is 1 % behind the second, which has e^-1 of the best one's share.
        assert!((gap([1.0, 3.0]).unwrap() - 0.00366).abs() < 1e-4);
        assert!(gap([2.0, 1.0]).unwrap() > 0.6, "another order");
        assert!(gap([1.0, 0.0]).unwrap() > 0.2, "a worse one");
        assert_eq!([gap([1.0, 1.0]), gap([1.0, 4.0]), gap([1.0, 2.5]), gap([1.0, f32::NAN])], [None; 4]);
    }
}
