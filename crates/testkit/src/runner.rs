//! The smallest driver of a plan: one sequence, pages in order.

use nibble_backend::{Activations, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};

/// Limits for one sequence of up to `context` tokens, run and read in steps of up to `rows`.
pub fn limits(rows: usize, context: usize, kv: KvType) -> Limits {
    Limits {
        rows,
        wanted: rows,
        sequences: 1,
        context,
        pages: context.div_ceil(PAGE_LEN),
        state_slots: 1,
        kv,
        activations: Activations::F32,
        check_finite: true,
    }
}

/// One sequence in a plan.
pub struct Runner {
    plan: Box<dyn Plan>,
    width: usize,
    pages: Vec<u32>,
    prompt_len: u32,
    len: u32,
}

impl Runner {
    /// A driver of `plan`, whose first output has `width` columns.
    pub fn new(plan: Box<dyn Plan>, width: usize) -> Self {
        // Pages in falling order: a backend that takes page numbers for positions is found out.
        let pages = (0..plan.limits().pages as u32).rev().collect();
        Self { plan, width, pages, prompt_len: 0, len: 0 }
    }

    /// Starts a sequence whose prompt has `prompt_len` tokens.
    pub fn start(&mut self, prompt_len: usize) {
        if self.plan.limits().state_slots > 0 {
            self.plan.clear_state(0).expect("slot 0 is within the limits");
        }
        (self.prompt_len, self.len) = (prompt_len as u32, 0);
    }

    /// Runs `tokens` next in steps of up to `chunk`; returns the first output of each of them.
    pub fn feed(&mut self, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        let mut outputs = Vec::with_capacity(tokens.len());
        for tokens in tokens.chunks(chunk) {
            let positions: Vec<u32> = (self.len..).take(tokens.len()).collect();
            let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
            let sequence = Sequence { pages: &self.pages, state: 0, prompt_len: self.prompt_len };
            let step = Step {
                tokens,
                positions: &positions,
                sequence: &vec![0; tokens.len()],
                sequences: &[sequence],
                wanted: &wanted,
            };
            self.plan.run(&step).expect("a step within the limits");
            self.len += tokens.len() as u32;
            for row in 0..tokens.len() {
                let mut output = vec![0.0; self.width];
                self.plan.read(0, row, &mut output).expect("a wanted row");
                outputs.push(output);
            }
        }
        outputs
    }

    /// Runs a prompt in one step and then the token of the largest logit, `count` times; returns these tokens.
    pub fn greedy(&mut self, prompt: &[u32], count: usize) -> Vec<u32> {
        self.start(prompt.len());
        let mut outputs = self.feed(prompt, prompt.len());
        let mut tokens = Vec::with_capacity(count);
        while tokens.len() < count {
            tokens.push(argmax(outputs.last().expect("at least one row")));
            if tokens.len() < count {
                outputs = self.feed(&tokens[tokens.len() - 1..], 1);
            }
        }
        tokens
    }
}

/// The index of the largest number, the first one of equals.
pub fn argmax(numbers: &[f32]) -> u32 {
    let better = |best: usize, i: usize| if numbers[i] > numbers[best] { i } else { best };
    (0..numbers.len()).reduce(better).expect("not empty") as u32
}
