//! The tokens that are still in the running, and the filters that thin them out.

use crate::share::{share, upper};

/// One token that may be drawn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidate {
    pub id: u32,
    pub logit: f32,
    /// Probability among the candidates, or a key to sort by, for [`Candidates::typical`].
    pub weight: f32,
}

/// Candidates in a buffer of the vocabulary's size.
#[derive(Debug, Clone)]
pub struct Candidates {
    items: Vec<Candidate>,
    /// Whether the likeliest come first, as [`before`] orders them.
    sorted: bool,
}

/// Likeliest first, and of equals the lowest id: a total order, so that no result depends on how it is sorted.
fn before(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(std::cmp::Ordering::Equal).then(a.id.cmp(&b.id))
}

impl Candidates {
    pub fn new(vocab: usize) -> Self {
        Self { items: Vec::with_capacity(vocab), sorted: false }
    }

    /// All tokens but the forbidden ones.
    pub fn fill(&mut self, logits: &[f32]) {
        let tokens = (0u32..).zip(logits).filter(|(_, logit)| **logit != f32::NEG_INFINITY);
        self.items.clear();
        self.items.extend(tokens.map(|(id, &logit)| Candidate { id, logit, weight: 0.0 }));
        self.sorted = false;
    }

    pub fn top_k(&mut self, k: usize) {
        if k == 0 || k >= self.items.len() {
            return;
        }
        if !self.sorted {
            self.items.select_nth_unstable_by(k, before);
        }
        self.items.truncate(k);
    }

    /// Keeps the likeliest until their shares are `p` of all, a share of 2^32.
    pub fn top_p(&mut self, p: u32) {
        let best = self.best();
        let share = |c: &Candidate| share(best - c.logit);
        let total: u64 = self.items.iter().map(share).sum();
        // The first whose sum is above this is the last one kept.
        let target = ((u128::from(total) * u128::from(p)).saturating_sub(1) >> 32) as u64;
        // Mostly a few hundred tokens are enough, so they are sorted by and by.
        let (mut done, mut sum) = (0, 0);
        while done < self.items.len() {
            let rest = &mut self.items[done..];
            let step = (done * 4).max(256).min(rest.len());
            if !self.sorted {
                if step < rest.len() {
                    rest.select_nth_unstable_by(step, before);
                }
                rest[..step].sort_unstable_by(before);
            }
            for c in &rest[..step] {
                sum += share(c);
                done += 1;
                if sum > target {
                    self.items.truncate(done);
                    break;
                }
            }
        }
        self.sorted = true;
    }

    /// Keeps those whose logits lie at most so far below the best.
    pub fn min_p(&mut self, below: f32) {
        let best = self.best();
        self.items.retain(|c| best - c.logit <= below);
    }

    pub fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.weigh();
        let surprise = |c: &Candidate| -f64::from(c.weight).max(f64::MIN_POSITIVE).ln();
        let entropy: f64 = self.items.iter().map(|c| f64::from(c.weight) * surprise(c)).sum();
        for c in &mut self.items {
            c.weight = (surprise(c) - entropy).abs() as f32;
        }
        self.items.sort_unstable_by(|a, b| a.weight.total_cmp(&b.weight).then(before(a, b)));
        self.sorted = false;
        self.weigh();
        let mut sum = 0.0;
        let enough = self.items.iter().position(|c| {
            sum += f64::from(c.weight);
            sum >= f64::from(p)
        });
        if let Some(last) = enough {
            self.items.truncate(last + 1);
        }
    }

    /// Makes logits their differences to the best one, times `inverse`: so no division by a small number overflows.
    pub fn temperature(&mut self, inverse: f32) {
        let best = self.best();
        for c in &mut self.items {
            c.logit = -((best - c.logit) * inverse);
        }
        // Logits so low that they became -inf are out; the best one is 0 now.
        self.items.retain(|c| c.logit != f32::NEG_INFINITY);
    }

    /// Puts the candidates back among the logits, where all others are forbidden from now on.
    pub fn write_back(&self, logits: &mut [f32]) {
        logits.fill(f32::NEG_INFINITY);
        for c in &self.items {
            logits[c.id as usize] = c.logit;
        }
    }

    /// The candidate at the place `random` / 2^64 of the summed shares, in the order of ids: so a draw does not depend on how
    /// the filters left them.
    pub fn draw(&mut self, random: u64) -> Option<u32> {
        self.items.sort_unstable_by_key(|c| c.id);
        self.sorted = false;
        let best = self.best();
        let share = |c: &Candidate| share(best - c.logit);
        let mut left = upper(random, self.items.iter().map(share).sum());
        for c in &self.items {
            let share = share(c);
            if left < share {
                return Some(c.id);
            }
            left -= share;
        }
        None
    }

    fn best(&self) -> f32 {
        self.items.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
    }

    /// Gives each candidate its probability.
    fn weigh(&mut self) {
        let best = f64::from(self.best());
        let exp = |c: &Candidate| (f64::from(c.logit) - best).exp();
        let total: f64 = self.items.iter().map(exp).sum();
        for c in &mut self.items {
            c.weight = (exp(c) / total) as f32;
        }
    }
}
