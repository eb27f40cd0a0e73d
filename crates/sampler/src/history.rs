//! The tokens so far, as many as any penalty looks at, and how often each of the last ones occurred.

/// A window over the last tokens. Its memory is taken when it is made.
#[derive(Debug, Clone)]
pub struct History {
    /// A ring: the token of place n is at `n % ring.len()`.
    ring: Vec<u32>,
    /// Tokens seen in all.
    seen: u64,
    /// For each token of the vocabulary, how often it is among the last `counted`, and its newest place.
    counts: Vec<u32>,
    newest: Vec<u64>,
    counted: usize,
}

impl History {
    /// Keeps `kept` tokens, and counts among the last `counted` of them.
    pub fn new(vocab: usize, counted: usize, kept: usize) -> Self {
        let each = if counted > 0 { vocab } else { 0 };
        Self {
            ring: vec![0; kept.max(counted)],
            seen: 0,
            counts: vec![0; each],
            newest: vec![0; each],
            counted,
        }
    }

    pub fn push(&mut self, token: u32) {
        if self.counted > 0 {
            if let Some(leaving) = self.back(self.counted - 1)
                && let Some(count) = self.counts.get_mut(leaving as usize)
            {
                *count -= 1;
            }
            if let Some(count) = self.counts.get_mut(token as usize) {
                *count += 1;
                self.newest[token as usize] = self.seen;
            }
        }
        if !self.ring.is_empty() {
            let place = (self.seen % self.ring.len() as u64) as usize;
            self.ring[place] = token;
        }
        self.seen += 1;
    }

    pub fn clear(&mut self) {
        self.seen = 0;
        self.counts.fill(0);
    }

    /// How many tokens can be looked back at.
    pub fn len(&self) -> usize {
        self.seen.min(self.ring.len() as u64) as usize
    }

    /// The token `n` places before the last one.
    pub fn back(&self, n: usize) -> Option<u32> {
        if n >= self.len() {
            return None;
        }
        Some(self.ring[((self.seen - 1 - n as u64) % self.ring.len() as u64) as usize])
    }

    /// How often a token is among the last ones.
    pub fn count(&self, token: u32) -> u32 {
        self.counts.get(token as usize).copied().unwrap_or(0)
    }

    /// The tokens that are counted, each once.
    pub fn counted(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.counted.min(self.len())).filter_map(|n| {
            let token = self.back(n)?;
            let newest = self.newest.get(token as usize)?;
            (*newest == self.seen - 1 - n as u64).then_some(token)
        })
    }
}
