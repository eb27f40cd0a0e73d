//! Slots of recurrent state: one for each running sequence, and checkpoints to return to.
//!
//! Keys and values can be cut at any position; recurrent state cannot. So copies are kept at some positions, named
//! by the tokens before them, and a prompt that begins with such tokens continues from there.

use crate::pages::Key;

struct Checkpoint {
    key: Key,
    len: usize,
    slot: u32,
    used: u64,
}

pub(crate) struct StateBank {
    free: Vec<u32>,
    checkpoints: Vec<Checkpoint>,
    clock: u64,
}

impl StateBank {
    pub(crate) fn new(slots: usize) -> Self {
        Self { free: (0..slots as u32).rev().collect(), checkpoints: Vec::with_capacity(slots), clock: 0 }
    }

    /// Slots that can be taken now.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.checkpoints.len()
    }

    /// A slot, at the cost of the oldest checkpoint if none is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let (oldest, _) = self.checkpoints.iter().enumerate().min_by_key(|(_, c)| c.used)?;
        Some(self.checkpoints.swap_remove(oldest).slot)
    }

    /// Gives a slot back.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Whether there is a checkpoint after this prefix.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.checkpoints.iter().any(|c| c.key == *key)
    }

    /// Turns a slot into the checkpoint after a prefix of `len` tokens.
    pub(crate) fn keep(&mut self, slot: u32, key: Key, len: usize) {
        self.clock += 1;
        self.checkpoints.push(Checkpoint { key, len, slot, used: self.clock });
    }

    /// Lengths of all checkpoints up to `most` tokens, longest first.
    pub(crate) fn lengths(&self, most: usize) -> Vec<usize> {
        let mut lengths: Vec<_> = self.checkpoints.iter().map(|c| c.len).filter(|&n| n <= most).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        lengths
    }

    /// The slot of the checkpoint after this prefix.
    pub(crate) fn find(&mut self, key: &Key) -> Option<u32> {
        self.clock += 1;
        let found = self.checkpoints.iter_mut().find(|c| c.key == *key)?;
        found.used = self.clock;
        Some(found.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{child, root};

    #[test]
    fn the_oldest_checkpoint_makes_room() {
        let mut bank = StateBank::new(2);
        let key = |n| child(&root(0), &[n]);
        let (a, b) = (bank.take().unwrap(), bank.take().unwrap());
        assert_eq!(bank.take(), None);
        bank.keep(a, key(1), 1);
        bank.keep(b, key(2), 2);
        assert_eq!(bank.find(&key(1)), Some(a));
        assert_eq!(bank.lengths(9), [2, 1]);
        assert_eq!(bank.take(), Some(b));
        assert!(!bank.contains(&key(2)) && bank.contains(&key(1)));
    }
}
