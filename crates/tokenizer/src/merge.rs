//! Merging neighbours in order of importance, shared by BPE and SentencePiece.
//!
//! Symbols form a linked list and candidate pairs a heap, so a word of `n` symbols takes `O(n log n)` time and no
//! recursion. A candidate that one of its sides has outgrown is recognized by its size and skipped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: usize = usize::MAX;

/// A stretch of the word: so far one token, or a character that has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Where it starts in the word, in bytes.
    pub start: usize,
    /// Its length in bytes; 0 once it was merged into its left neighbour.
    pub len: usize,
    /// Its token.
    pub id: Option<u32>,
    prev: usize,
    next: usize,
}

/// What two neighbours would become.
pub(crate) struct Joined {
    /// Lower merges earlier; of equals the leftmost.
    pub order: u32,
    /// The token of both.
    pub id: u32,
}

/// A heap entry: order and place first, because they decide.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    order: u32,
    left: usize,
    size: usize,
    id: u32,
}

/// Working memory, kept between words.
#[derive(Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Starts a new word.
    pub fn clear(&mut self) {
        self.symbols.clear();
        self.heap.clear();
    }

    /// Appends a symbol of `len` bytes to the word; `len` is not 0.
    pub fn push(&mut self, len: usize, id: Option<u32>) {
        let index = self.symbols.len();
        let (start, prev) = match self.symbols.last_mut() {
            Some(last) => {
                last.next = index;
                (last.start + last.len, index - 1)
            }
            None => (0, NONE),
        };
        self.symbols.push(Symbol { start, len, id, prev, next: NONE });
    }

    /// Merges until `join` accepts no pair of neighbours, then yields what is left, in order.
    pub fn merge(
        &mut self,
        join: impl Fn(&Symbol, &Symbol) -> Option<Joined>,
    ) -> impl Iterator<Item = &Symbol> {
        for left in 0..self.symbols.len() {
            self.offer(left, &join);
        }
        while let Some(Reverse(best)) = self.heap.pop() {
            let left = self.symbols[best.left];
            if left.len == 0 || left.next == NONE || left.len + self.symbols[left.next].len != best.size {
                continue; // one side has grown or gone since
            }
            self.absorb(best.left, best.id);
            if left.prev != NONE {
                self.offer(left.prev, &join);
            }
            self.offer(best.left, &join);
        }
        self.symbols.iter().filter(|s| s.len != 0)
    }

    fn offer(&mut self, left: usize, join: &impl Fn(&Symbol, &Symbol) -> Option<Joined>) {
        let (a, next) = (&self.symbols[left], self.symbols[left].next);
        if next == NONE {
            return;
        }
        let b = &self.symbols[next];
        if let Some(Joined { order, id }) = join(a, b) {
            self.heap.push(Reverse(Candidate { order, left, size: a.len + b.len, id }));
        }
    }

    /// Joins the symbol at `left` with its right neighbour.
    fn absorb(&mut self, left: usize, id: u32) {
        let right = self.symbols[left].next;
        let Symbol { len, next, .. } = self.symbols[right];
        self.symbols[right].len = 0;
        let joined = &mut self.symbols[left];
        joined.len += len;
        joined.id = Some(id);
        joined.next = next;
        if next != NONE {
            self.symbols[next].prev = left;
        }
    }
}
