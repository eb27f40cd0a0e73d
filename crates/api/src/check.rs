//! A plan with another one beside it that knows better: every weight's result and every layer's is compared, step by step.
//!
//! The second plan has keys, values and states of its own, so what the first one does to them shows in later steps too.

use nibble_backend::{Activations, Counts, Error, KvType, Limits, Memory, Plan, Step, Tracer};
use nibble_graph::{Graph, Rows};
use std::sync::Arc;

/// How far a number may be off, relative to the largest of its row, where nothing but weights is rounded.
const EXACT: f32 = 2e-3;

/// The same where inputs of products, or keys and values, are rounded: not alike on all devices.
const ROUNDED: f32 = 0.25;

/// An output that is compared.
struct Watched {
    output: usize,
    what: String,
    rows: Rows,
    width: usize,
}

/// Two plans of one graph. The first one answers.
pub struct Checked {
    plan: Box<dyn Plan>,
    other: Box<dyn Plan>,
    /// In the order in which they are made.
    watched: Vec<Watched>,
    bound: f32,
    found: Vec<f32>,
    expected: Vec<f32>,
}

/// `graph` with an output more for every weight's result and every layer's.
pub fn tapped(graph: &Graph) -> Graph {
    let mut tapped = graph.clone();
    let taps = tapped.tap();
    tapped.outputs.clone_from(&graph.outputs);
    tapped.outputs.extend(taps.iter().map(|tap| tap.value).filter(|value| !graph.outputs.contains(value)));
    tapped
}

impl Checked {
    /// `plan`, checked by `other`; both are of `graph`, which is [`tapped`].
    pub fn new(graph: &Graph, plan: Box<dyn Plan>, other: Box<dyn Plan>) -> Self {
        let mut values: Vec<_> = graph.outputs.iter().copied().enumerate().collect();
        values.sort_by_key(|&(_, value)| value);
        let watch = |(output, value)| {
            let node = graph.node(value);
            Watched { output, what: graph.label(&[value]).to_string(), rows: node.rows, width: node.width }
        };
        let watched: Vec<_> = values.into_iter().map(watch).collect();
        let widest = watched.iter().map(|w| w.width).max().unwrap_or(0);
        let Limits { kv, activations, .. } = *plan.limits();
        let exact = kv == KvType::F32 && activations == Activations::F32;
        let bound = if exact { EXACT } else { ROUNDED };
        Self { plan, other, watched, bound, found: vec![0.0; widest], expected: vec![0.0; widest] }
    }

    /// Compares what the last step made.
    fn compare(&mut self, step: &Step<'_>) -> Result<(), Error> {
        for watched in &self.watched {
            let rows = match watched.rows {
                Rows::Tokens => step.tokens.len(),
                Rows::Wanted => step.wanted.len(),
            };
            let found = &mut self.found[..watched.width];
            let expected = &mut self.expected[..watched.width];
            for row in 0..rows {
                self.plan.read(watched.output, row, found)?;
                self.other.read(watched.output, row, expected)?;
                if let Some(column) = difference(found, expected, self.bound) {
                    let (found, expected) = (found[column], expected[column]);
                    return Err(Error::Differs { what: watched.what.clone(), row, column, expected, found });
                }
            }
        }
        Ok(())
    }
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
        let mut checked = Checked::new(&graph, Box::new(wrong), other);
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
}
