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

/// Positions up to which runs are joined by the workgroup that is done last: it waits for each read of what others left, so many runs
/// are left to a call of their own.
const JOINED: usize = 1024;

impl Builder<'_> {
    /// The variants for such rows, of kernels that are right. `twin` says what is computed.
    pub(super) fn alone(&mut self, twin: &Attend, buffers: &Buffers<'_>) -> Vec<Variant> {
        let caps = self.options.caps;
        let (a, bank) = (&twin.op, &twin.bank);
        if self.options.strict || !self.options.fuse || !alone::fits(a, bank, caps.workgroup) {
            return vec![];
        }
        let (few, context) = (self.options.limits.rows.min(FEW), self.options.limits.context);
        let across = bank.layer.kv_heads * alone::heads(a, bank).groups;
        let runs = attention::runs(context);
        let fit = |most| Fit { alone: Some(most), ..Fit::rows(few) };
        let kernel = |joins| {
            let (turn, codes, sinks) = (twin.turn.as_ref(), twin.codes, twin.sinks);
            let shader = alone::attend(&Alone { op: a, bank, turn, joins, codes, sinks });
            (shader, Attend { how: How::Alone { joins }, ..twin.clone() })
        };
        let grid = [Dim::Fixed(across as u32), Dim::Rows(1, 1), Dim::Fixed(runs as u32)];
        let Buffers { before, runs: parts, ends, sinks } = buffers;
        let mut variants = vec![];
        let (shader, of) = kernel(true);
        let shader = shader.with(of);
        if caps.coherent && !self.is_wrong(&shader) {
            let done = self.counts(few * across);
            let slots =
                before.iter().chain(parts).chain([&done]).chain(*ends).chain(sinks).copied().collect();
            let calls = vec![call(shader, slots, ints([runs]), grid)];
            variants.push(Variant { fit: fit(JOINED), calls });
        }
        let (shader, of) = kernel(false);
        let join = attention::join(a, bank, twin.codes, false, twin.sinks).with(of);
        if !self.is_wrong(&join) {
            let slots = before.iter().chain(parts).copied().collect();
            let attend = call(shader, slots, ints([runs]), grid);
            let slots = [before[0]].iter().chain(parts).chain(*ends).chain(sinks).copied().collect();
            let join =
                call(join, slots, ints([runs]), [Dim::Fixed(a.heads as u32), Dim::Rows(1, 1), Dim::Fixed(1)]);
            variants.push(Variant { fit: fit(usize::MAX), calls: vec![attend, join] });
        }
        variants
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
