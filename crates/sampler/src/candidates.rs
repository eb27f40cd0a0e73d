//! The tokens that are still in the running, and the filters that thin them out.

/// One token that may be drawn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidate {
    pub id: u32,
    pub logit: f32,
    /// Probability among the candidates, or a key to sort by, as the filter at work needs it.
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
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
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

    pub fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.weigh();
        // Mostly a few hundred tokens are enough, so they are sorted by and by.
        let (mut done, mut sum) = (0, 0.0);
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
                sum += f64::from(c.weight);
                done += 1;
                if sum >= f64::from(p) {
                    self.items.truncate(done);
                    break;
                }
            }
        }
        self.sorted = true;
    }

    pub fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        // P(token) >= p P(best) holds where logit >= best + ln p: no probability is needed.
        let least = f64::from(self.best()) + f64::from(p).ln();
        self.items.retain(|c| f64::from(c.logit) >= least);
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

    pub fn temperature(&mut self, temperature: f32) {
        if temperature == 1.0 {
            return;
        }
        let best = self.best();
        for c in &mut self.items {
            // From the best one on, so that no division by a small number overflows.
            c.logit = (c.logit - best) / temperature;
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

    /// The candidate at `u`, in [0, 1), of the summed probabilities, in the order of ids: so a draw does not depend
    /// on how the filters left them.
    pub fn draw(&mut self, u: f64) -> Option<u32> {
        self.items.sort_unstable_by_key(|c| c.id);
        self.sorted = false;
        let best = f64::from(self.best());
        let weight = |c: &Candidate| (f64::from(c.logit) - best).exp();
        let total: f64 = self.items.iter().map(weight).sum();
        let mut left = u * total;
        for c in &self.items {
            left -= weight(c);
            if left < 0.0 {
                return Some(c.id);
            }
        }
        // Rounding may leave a rest: then it is the last one that has a probability.
        self.items.iter().rev().find(|c| weight(c) > 0.0).map(|c| c.id)
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
