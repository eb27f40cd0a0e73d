//! Attention of rows that are alone in their sequence: one call.

use crate::{
    build::{Builder, FEW, call, ints},
    kernels::attention::{
        self,
        alone::{self, Alone},
    },
    selfcheck::{Attend, How},
    tape::{Content, Dim, Fit, Slot, Variant},
};

/// What such a call reads and leaves.
pub(super) struct Buffers<'a> {
    /// All that comes before sums, up to queries that have not turned yet.
    pub(super) before: &'a [Slot],
    /// Sums and stats of runs.
    pub(super) runs: [Slot; 2],
    /// The result, as floats or as codes.
    pub(super) ends: &'a [Slot],
    /// Scores of sinks.
    pub(super) sinks: Option<Slot>,
}

/// The longest sequence whose runs the workgroup that is done last joins: the more there are, the longer it takes.
const JOINED: usize = 1024;

impl Builder<'_> {
    /// The variant for such rows, if there is a kernel that is right. `twin` says what is computed.
    pub(super) fn alone(&mut self, twin: Attend, buffers: &Buffers<'_>) -> Option<Variant> {
        let caps = self.options.caps;
        let (a, bank) = (&twin.op, &twin.bank);
        if self.options.strict
            || !self.options.fuse
            || !caps.coherent
            || !alone::fits(a, bank, caps.workgroup)
        {
            return None;
        }
        let (turn, codes, sinks) = (twin.turn.as_ref(), twin.codes, twin.sinks);
        let shader = alone::attend(&Alone { op: a, bank, turn, codes, sinks });
        let across = bank.layer.kv_heads * alone::heads(a, bank).groups;
        let shader = shader.with(Attend { how: How::Alone, ..twin });
        if self.is_wrong(&shader) {
            return None;
        }
        let few = self.options.limits.rows.min(FEW);
        let runs = attention::runs(self.options.limits.context);
        let done = self.counts(few * across);
        let Buffers { before, runs: parts, ends, sinks } = buffers;
        let slots = before.iter().chain(parts).chain([&done]).chain(*ends).chain(sinks).copied().collect();
        let grid = [Dim::Fixed(across as u32), Dim::Rows(1, 1), Dim::Fixed(runs as u32)];
        let calls = vec![call(shader, slots, ints([runs]), grid)];
        Some(Variant { fit: Fit { alone: Some(JOINED), ..Fit::rows(few) }, calls })
    }

    /// Counts that kernels leave as they find them: zero. All calls share them.
    fn counts(&mut self, count: usize) -> Slot {
        let found = self.tape.slots.iter().position(|slot| matches!(slot.content, Content::Counts));
        let slot = found.map_or_else(|| self.add_slot(Content::Counts, 0), Slot);
        let bytes = &mut self.tape.slots[slot.0].bytes;
        *bytes = (*bytes).max(count as u64 * 4);
        slot
    }
}
