//! A model on two devices: the first layers on one, the rest on another. What the border's rows hold is read from the one and given
//! to the other, once a step.

use nibble_backend::{Backend, Counts, Device, Error, Limits, Memory, Plan, Step, Tracer};
use nibble_graph::{Graph, Op, Split};
use std::sync::Arc;

/// Two devices as one.
pub struct Pair {
    /// Runs the layers before the border, and what comes before them.
    pub first: Box<dyn Backend>,
    /// Runs the layers from the border on, and what comes after them.
    pub second: Box<dyn Backend>,
    /// The first layer of the second device.
    pub border: usize,
}

/// Bytes that may be reserved: what the user says in all, what each device has.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// On both devices together, if somebody says so.
    pub total: Option<u64>,
    /// On each device, where it is known.
    pub each: [Option<u64>; 2],
}

impl Budget {
    fn fits(&self, memories: &[Memory; 2]) -> bool {
        let own = [memories[0].own(), memories[1].own()];
        let below = |bytes: u64, most: Option<u64>| most.is_none_or(|most| bytes <= most);
        below(own[0].saturating_add(own[1]), self.total)
            && own.into_iter().zip(self.each).all(|(bytes, most)| below(bytes, most))
    }
}

impl Pair {
    /// Moves the border to where the second device has as many layers as fit, at least one; returns what each device then
    /// reserves, or `None` if not one layer fits.
    ///
    /// # Errors
    /// As [`Backend::memory`], unless it is for lack of memory.
    pub fn fill(
        &mut self,
        graph: &Graph,
        limits: &Limits,
        budget: &Budget,
    ) -> Result<Option<[Memory; 2]>, Error> {
        // The fewer layers there are before the border, the more the second device needs.
        let (mut least, mut most, mut found) = (0, graph.layers(), None);
        while least < most {
            self.border = (least + most) / 2;
            match self.memories(graph, limits) {
                Ok(memories) if budget.fits(&memories) => {
                    (most, found) = (self.border, Some(memories));
                }
                Ok(_) | Err(Error::Memory { .. }) => least = self.border + 1,
                Err(error) => return Err(error),
            }
        }
        self.border = most;
        Ok(found)
    }

    /// How many layers are where, and what they take.
    pub fn note(&self, layers: usize, memories: &[Memory; 2]) -> String {
        let mib = |m: &Memory| (m.own() + m.mapped_weights).div_ceil(1 << 20);
        format!(
            "layers: {} of {layers} on {} ({} MiB), {} and the output on {} ({} MiB)",
            self.border,
            self.first.describe(),
            mib(&memories[0]),
            layers - self.border,
            self.second.describe(),
            mib(&memories[1]),
        )
    }

    fn split(&self, graph: &Graph) -> Result<Split, Error> {
        let unsupported =
            |e: nibble_graph::Error| Error::Unsupported { device: self.describe(), what: e.to_string() };
        graph.split(self.border).map_err(unsupported)
    }

    /// What each device would reserve.
    ///
    /// # Errors
    /// As [`Backend::memory`].
    pub fn memories(&self, graph: &Graph, limits: &Limits) -> Result<[Memory; 2], Error> {
        let split = self.split(graph)?;
        Ok([self.first.memory(&split.first, limits)?, self.second.memory(&split.second, limits)?])
    }
}

impl Backend for Pair {
    fn device(&self) -> Device {
        let (first, second) = (self.first.device(), self.second.device());
        Device {
            name: format!("{} and {}", first.name, second.name),
            instructions: format!("{} and {}", first.instructions, second.instructions),
            threads: first.threads,
        }
    }

    fn describe(&self) -> String {
        let (first, second) = (self.first.describe(), self.second.describe());
        format!("{first} before layer {}, {second} from there on", self.border)
    }

    fn available_memory(&self) -> Option<u64> {
        Some(self.first.available_memory()?.saturating_add(self.second.available_memory()?))
    }

    fn runs(&self, op: &Op) -> bool {
        self.first.runs(op) && self.second.runs(op)
    }

    fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
        let [first, second] = self.memories(graph, limits)?;
        Ok(sum(first, second))
    }

    fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error> {
        let split = self.split(graph)?;
        let first = self.first.compile(&split.first, limits)?;
        let second = self.second.compile(&split.second, limits)?;
        let widest = split.given.iter().max().copied().unwrap_or(0);
        Ok(Box::new(PairPlan {
            first,
            second,
            given: split.given,
            outputs: split.outputs,
            numbers: vec![0.0; widest * limits.rows],
        }))
    }
}

fn sum(a: Memory, b: Memory) -> Memory {
    Memory {
        mapped_weights: a.mapped_weights + b.mapped_weights,
        weights: a.weights + b.weights,
        kv: a.kv + b.kv,
        state: a.state + b.state,
        activations: a.activations + b.activations,
    }
}

/// A plan on each.
struct PairPlan {
    first: Box<dyn Plan>,
    second: Box<dyn Plan>,
    given: Vec<usize>,
    outputs: Vec<(bool, usize)>,
    /// What crosses the border.
    numbers: Vec<f32>,
}

impl Plan for PairPlan {
    fn limits(&self) -> &Limits {
        self.first.limits()
    }

    fn memory(&self) -> Memory {
        sum(self.first.memory(), self.second.memory())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
        self.first.run(step)?;
        for (i, &width) in self.given.iter().enumerate() {
            let numbers = &mut self.numbers[..step.tokens.len() * width];
            for (row, numbers) in numbers.chunks_exact_mut(width).enumerate() {
                self.first.read(i, row, numbers)?;
            }
            self.second.give(i, numbers)?;
        }
        self.second.run(step)
    }

    fn modes(&self) -> Vec<&'static str> {
        self.second.modes()
    }

    fn mode(&self) -> &'static str {
        self.second.mode()
    }

    fn set_mode(&mut self, name: &str) -> Result<(), Error> {
        self.second.set_mode(name)
    }

    fn device_memory(&self) -> Option<u64> {
        self.second.device_memory()
    }

    fn counts(&self) -> Counts {
        self.second.counts()
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        match self.outputs.get(output) {
            Some(&(false, output)) => self.first.read(output, row, into),
            Some(&(true, output)) => self.second.read(output, row, into),
            None => {
                let expected = format!("less than {}", self.outputs.len());
                Err(Error::Step { what: "output", expected, found: output.to_string() })
            }
        }
    }

    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        self.first.trace(Arc::clone(&tracer));
        self.second.trace(tracer);
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
        self.first.copy_page(from, to)?;
        self.second.copy_page(from, to)
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
        self.first.copy_state(from, to)?;
        self.second.copy_state(from, to)
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
        self.first.clear_state(slot)?;
        self.second.clear_state(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Options};
    use nibble_backend::{Activations, KvType};
    use nibble_backend_cpu::{Cpu, CpuOptions};
    use nibble_backend_reference::Reference;
    use nibble_testkit::{runner::Runner, workspace_root};

    fn cpu() -> Box<dyn Backend> {
        Box::new(Cpu::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }))
    }

    /// Logits of a prompt in steps of a few rows, then greedy tokens.
    fn run(backend: &dyn Backend, graph: &Graph, limits: &Limits) -> (Vec<Vec<f32>>, Vec<u32>) {
        let width = graph.node(graph.outputs[0]).width;
        let prompt: Vec<u32> = (0..19).map(|i| (i * 7 + 3) % width as u32).collect();
        let mut runner = Runner::new(backend.compile(graph, limits).unwrap(), width);
        runner.start(prompt.len());
        let logits = runner.feed(&prompt, 8);
        (logits, runner.greedy(&prompt, 12))
    }

    #[test]
    fn a_model_cut_at_any_border_answers_as_a_whole_one() {
        for name in ["llama", "gemma2", "qwen3-moe", "qwen3.5", "gpt-oss"] {
            let path = workspace_root().join("golden/models").join(name);
            let model = Model::open(&path, &nibble_quant::Registry::default()).unwrap();
            let graph = &model.graph;
            let options =
                Options { kv: KvType::F32, activations: Activations::F32, wanted: 19, ..Options::default() };
            let limits = Limits { rows: 19, context: 64, pages: 1, ..model.limits(&options) };
            let (logits, tokens) = run(&*cpu(), graph, &limits);
            for border in 0..=graph.layers() {
                let same = Pair { first: cpu(), second: cpu(), border };
                assert!(run(&same, graph, &limits) == (logits.clone(), tokens.clone()), "{name}, {border}");
                let other = Pair { first: cpu(), second: Box::new(Reference), border };
                assert_eq!(run(&other, graph, &limits).1, tokens, "{name}, {border}");
            }
        }
    }

    /// A device that holds weights itself, and has so much memory.
    struct Small(Box<dyn Backend>);

    impl Backend for Small {
        fn device(&self) -> Device {
            self.0.device()
        }
        fn available_memory(&self) -> Option<u64> {
            None
        }
        fn runs(&self, op: &Op) -> bool {
            self.0.runs(op)
        }
        fn prompt_rows(&self) -> usize {
            2048
        }
        fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
            let memory = self.0.memory(graph, limits)?;
            Ok(Memory { weights: memory.weights + memory.mapped_weights, mapped_weights: 0, ..memory })
        }
        fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error> {
            self.0.compile(graph, limits)
        }
    }

    #[test]
    fn as_many_layers_as_fit_go_to_the_second_device() {
        let model = Model::builtin().unwrap();
        let (graph, limits) = (&model.graph, model.limits(&Options::default()));
        let layers = graph.layers();
        let pair = |border| Pair { first: cpu(), second: Box::new(Small(cpu())), border };
        for border in 0..layers {
            let memories = pair(border).memories(graph, &limits).unwrap();
            let exact = Budget { total: None, each: [None, Some(memories[1].own())] };
            let mut filled = pair(layers);
            assert_eq!(filled.fill(graph, &limits, &exact).unwrap(), Some(memories));
            assert_eq!(filled.border, border);
            let note = filled.note(layers, &memories);
            assert!(note.starts_with(&format!("layers: {border} of {layers} on ")), "{note}");
        }
        let none = Budget { total: Some(1), each: [None; 2] };
        assert_eq!(pair(0).fill(graph, &limits, &none).unwrap(), None);
    }

    #[test]
    fn prompts_run_in_the_longest_steps_that_the_device_likes_and_that_fit() {
        let model = Model::builtin().unwrap();
        let device = Small(cpu());
        let options = |prefill_chunk, memory_budget| Options {
            context: Some(4096),
            prefill_chunk,
            memory_budget,
            ..Options::default()
        };
        let rows = |chunk, budget| model.limits_on(&device, &model.graph, &options(chunk, budget)).rows;
        let needs = |rows| {
            let limits = Limits { rows, ..model.limits(&options(None, None)) };
            device.memory(&model.graph, &limits).unwrap().own()
        };
        assert_eq!([rows(None, None), rows(Some(100), None), rows(Some(4000), None)], [2048, 100, 4000]);
        assert_eq!([2048, 1024].map(|n| rows(None, Some(needs(n)))), [2048, 1024]);
        assert_eq!([2048, 1024, 512].map(|n| rows(None, Some(needs(n) - 1))), [1024, 512, 512]);
        let others = |options: Options| model.limits_on(&device, &model.graph, &options).rows;
        assert_eq!(others(Options { context: Some(100), ..options(None, None) }), 100);
        assert_eq!(others(Options { check: true, ..options(None, None) }), 512);
    }

    #[test]
    fn layers_are_placed_as_asked_or_refused_with_figures() {
        let model = Model::builtin().unwrap();
        let layers = model.graph.layers();
        let share = |gpu_layers, memory_budget| {
            let options = Options { gpu_layers, memory_budget, ..Options::default() };
            model.share(Box::new(Small(cpu())), || Ok(cpu()), &options)
        };
        assert!(share(None, None).unwrap().unwrap().note.is_none(), "all of it fits");
        let whole = model.backend(&Options { device: "cpu".into(), ..Options::default() }).unwrap();
        for (gpu_layers, device) in [(0, "gpu"), (0, "auto"), (1, "cpu")] {
            let options =
                Options { gpu_layers: Some(gpu_layers), device: device.into(), ..Options::default() };
            let found = model.place(&options).map(|placed| placed.backend.describe());
            match gpu_layers {
                0 => assert_eq!(found.unwrap(), whole.describe()),
                _ => assert!(found.unwrap_err().to_string().contains("finds no GPU")),
            }
        }
        assert!(share(Some(layers), None).unwrap().unwrap().note.is_none());
        let note = share(Some(1), None).unwrap().unwrap().note.unwrap();
        assert!(note.contains(&format!("{} of {layers} on ", layers - 1)), "{note}");
        assert!(share(None, Some(1)).unwrap().is_none());
        let error = share(Some(1), Some(1)).err().unwrap().to_string();
        assert!(error.starts_with("GPU layers: 1 of ") && error.contains("where 0 fit at most"), "{error}");
    }
}
