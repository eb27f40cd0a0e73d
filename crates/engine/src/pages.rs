//! The bank of pages: who holds which, and which prefix of tokens each one is.
//!
//! A page is named by the hash of the tokens before it (its parent's name and tokens) and found again by its own
//! tokens, so an unchanged head of a conversation costs nothing the second time. Pages that nobody holds stay until
//! their space is needed; the one unused for longest goes first. Taking a page never allocates.

use nibble_backend::PAGE_LEN;
use std::collections::HashMap;

/// The name of a prefix: the hash of all its tokens, page by page.
pub(crate) type Key = [u8; 32];

/// The name of the empty prefix. `salt` keeps apart prefixes whose keys and values differ for other reasons than
/// their tokens.
pub(crate) fn root(salt: u64) -> Key {
    *blake3::hash(&salt.to_le_bytes()).as_bytes()
}

/// The name of the prefix `parent` followed by `tokens`.
pub(crate) fn child(parent: &Key, tokens: &[u32]) -> Key {
    let mut hasher = blake3::Hasher::new_keyed(parent);
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

struct Page {
    /// Sequences that hold it.
    holders: u32,
    /// The prefix before it, if it can be found.
    parent: Option<Key>,
    /// The tokens that it can be found by; at most [`PAGE_LEN`].
    tokens: Vec<u32>,
    /// When it was last held, for eviction.
    used: u64,
}

pub(crate) struct PageBank {
    pages: Vec<Page>,
    /// Pages with nothing in them.
    free: Vec<u32>,
    /// Pages nobody holds but which can be found.
    idle: usize,
    /// Pages by the prefix before them.
    children: HashMap<Key, Vec<u32>>,
    clock: u64,
}

impl PageBank {
    pub(crate) fn new(pages: usize) -> Self {
        let page = |_| Page { holders: 0, parent: None, tokens: Vec::with_capacity(PAGE_LEN), used: 0 };
        Self {
            pages: (0..pages).map(page).collect(),
            free: (0..pages as u32).rev().collect(),
            idle: 0,
            children: HashMap::with_capacity(pages),
            clock: 0,
        }
    }

    /// Pages in all.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages that can be taken now.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// An empty page, held once; `None` if all are held.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop().or_else(|| self.evict())?;
        self.pages[page as usize].holders = 1;
        Some(page)
    }

    fn evict(&mut self) -> Option<u32> {
        let idle = |p: &&Page| p.holders == 0 && p.parent.is_some();
        let oldest = self.pages.iter().filter(idle).map(|p| p.used).min()?;
        let page =
            self.pages.iter().position(|p| p.holders == 0 && p.parent.is_some() && p.used == oldest)? as u32;
        self.forget(page);
        self.idle -= 1;
        Some(page)
    }

    /// Makes a page impossible to find.
    pub(crate) fn forget(&mut self, page: u32) {
        let entry = &mut self.pages[page as usize];
        entry.tokens.clear();
        let Some(parent) = entry.parent.take() else { return };
        if let Some(siblings) = self.children.get_mut(&parent) {
            siblings.retain(|&p| p != page);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// One more holder.
    pub(crate) fn hold(&mut self, page: u32) {
        let entry = &mut self.pages[page as usize];
        if entry.holders == 0 && entry.parent.is_some() {
            self.idle -= 1;
        }
        entry.holders += 1;
    }

    /// One holder fewer.
    pub(crate) fn release(&mut self, page: u32) {
        self.clock += 1;
        let entry = &mut self.pages[page as usize];
        entry.used = self.clock;
        entry.holders -= 1;
        if entry.holders == 0 {
            if entry.parent.is_some() {
                self.idle += 1;
            } else {
                self.free.push(page);
            }
        }
    }

    /// The page after prefix `parent` that begins with most of `tokens`, and how many of them.
    pub(crate) fn find(&self, parent: &Key, tokens: &[u32]) -> Option<(u32, usize)> {
        let common = |page: u32| {
            let held = &self.pages[page as usize].tokens;
            held.iter().zip(tokens).take_while(|(a, b)| a == b).count()
        };
        let best = self.children.get(parent)?.iter().map(|&page| (page, common(page)));
        best.filter(|&(_, n)| n > 0).max_by_key(|&(_, n)| n)
    }

    /// Lets a page be found: it holds `tokens` after prefix `parent`.
    ///
    /// An equal page that can be found already makes this one superfluous; one whose tokens are a part of these
    /// and which nobody holds is replaced by it.
    pub(crate) fn publish(&mut self, page: u32, parent: Key, tokens: &[u32]) {
        debug_assert!(tokens.len() <= PAGE_LEN && self.pages[page as usize].holders > 0);
        if tokens.is_empty() {
            return;
        }
        if let Some((other, common)) = self.find(&parent, tokens)
            && other != page
        {
            let held = &self.pages[other as usize];
            if common == tokens.len() {
                return;
            }
            if common == held.tokens.len() && held.holders == 0 {
                self.forget(other);
                self.idle -= 1;
                self.free.push(other);
            }
        }
        self.forget(page);
        let entry = &mut self.pages[page as usize];
        entry.parent = Some(parent);
        entry.tokens.extend_from_slice(tokens);
        self.children.entry(parent).or_default().push(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_the_longest_common_start() {
        let mut bank = PageBank::new(4);
        let start = root(0);
        let (a, b) = (bank.take().unwrap(), bank.take().unwrap());
        bank.publish(a, start, &[1, 2, 3]);
        bank.publish(b, start, &[1, 2, 4, 5]);
        assert_eq!(bank.find(&start, &[1, 2, 4, 9]), Some((b, 3)));
        assert_eq!(bank.find(&start, &[7]), None);
        assert_eq!(bank.find(&child(&start, &[1]), &[2]), None);
    }

    #[test]
    fn the_page_unused_for_longest_is_evicted_first_and_held_ones_never() {
        let mut bank = PageBank::new(3);
        let start = root(0);
        let pages: Vec<_> = (0..3).map(|_| bank.take().unwrap()).collect();
        for (i, &page) in pages.iter().enumerate() {
            bank.publish(page, start, &[i as u32]);
        }
        bank.release(pages[1]);
        bank.release(pages[0]);
        assert_eq!(bank.available(), 2);
        assert_eq!(bank.take(), Some(pages[1]));
        assert_eq!(bank.find(&start, &[1]), None);
        assert_eq!(bank.take(), Some(pages[0]));
        assert_eq!(bank.take(), None);
        assert_eq!(bank.find(&start, &[2]), Some((pages[2], 1)));
    }

    #[test]
    fn an_equal_page_is_not_listed_twice_and_a_part_is_replaced() {
        let mut bank = PageBank::new(3);
        let start = root(0);
        let pages: Vec<_> = (0..3).map(|_| bank.take().unwrap()).collect();
        bank.publish(pages[0], start, &[1, 2]);
        bank.publish(pages[1], start, &[1, 2]);
        bank.release(pages[1]);
        assert_eq!(bank.available(), 1, "the second is free again");
        bank.release(pages[0]);
        bank.publish(pages[2], start, &[1, 2, 3]);
        assert_eq!(bank.find(&start, &[1, 2]), Some((pages[2], 2)));
        bank.release(pages[2]);
        assert_eq!(bank.available(), 3);
    }

    #[test]
    fn other_salts_are_other_prefixes() {
        assert_ne!(root(0), root(1));
        assert_ne!(child(&root(0), &[1, 2]), child(&child(&root(0), &[1]), &[2]));
    }
}
