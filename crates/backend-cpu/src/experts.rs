//! Rows sorted by expert, for `expert_matmul`; and `combine`.

/// Which slots (`row * used + slot`) every expert works on.
pub struct Assignment<'a> {
    /// Slots, expert after expert, in rising order within each.
    slots: &'a mut [u32],
    /// The input row of each of them.
    inputs: &'a mut [u32],
    /// Where each expert's slots begin, and the end of the last.
    starts: &'a mut [u32],
    /// The experts that have any.
    active: &'a mut [u32],
    count: usize,
}

impl<'a> Assignment<'a> {
    /// Numbers that an assignment of `slots` slots to `experts` experts takes.
    pub fn len(slots: usize, experts: usize) -> usize {
        2 * slots + 2 * experts + 2
    }

    /// Sorts the slots of `rows` rows by the experts in `route` (`[rows, 2 * used]`). Inputs are rows, or the slots
    /// themselves where each has an input of its own.
    pub fn new(memory: &'a mut [u32], route: &[f32], used: usize, experts: usize, own_inputs: bool) -> Self {
        let count = route.len() / 2;
        let (slots, memory) = memory.split_at_mut(count);
        let (inputs, memory) = memory.split_at_mut(count);
        let (starts, memory) = memory.split_at_mut(experts + 2);
        let mut all = Self { slots, inputs, starts, active: &mut memory[..experts], count: 0 };
        let expert = |slot: usize| route[slot / used * 2 * used + used + slot % used] as usize;
        all.starts.fill(0);
        for slot in 0..count {
            all.starts[expert(slot) + 2] += 1;
        }
        for e in 0..experts {
            if all.starts[e + 2] > 0 {
                all.active[all.count] = e as u32;
                all.count += 1;
            }
            all.starts[e + 2] += all.starts[e + 1];
        }
        // `starts[e + 1]` now begins expert `e` and moves to its end, which is where `e + 1` begins.
        for slot in 0..count {
            let at = &mut all.starts[expert(slot) + 1];
            all.slots[*at as usize] = slot as u32;
            all.inputs[*at as usize] = if own_inputs { slot } else { slot / used } as u32;
            *at += 1;
        }
        all
    }

    /// Experts that have anything to do.
    pub fn active(&self) -> usize {
        self.count
    }

    /// The `i`-th active expert: its number, its input rows, its slots.
    pub fn expert(&self, i: usize) -> (usize, &[u32], &[u32]) {
        let expert = self.active[i] as usize;
        let range = self.starts[expert] as usize..self.starts[expert + 1] as usize;
        (expert, &self.inputs[range.clone()], &self.slots[range])
    }
}

/// `combine`: the parts of one row, summed with their weights in slot order.
pub fn combine(x: &[f32], route: &[f32], y: &mut [f32]) {
    y.fill(0.0);
    for (part, weight) in x.chunks_exact(y.len()).zip(route) {
        for (y, x) in y.iter_mut().zip(part) {
            *y += weight * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_sorted_by_expert_and_keep_their_order() {
        let route = [0.5, 0.5, 2.0, 0.0, 0.5, 0.5, 3.0, 2.0]; // two rows: experts 2, 0 and 3, 2
        let mut memory = vec![7; Assignment::len(4, 5)];
        let a = Assignment::new(&mut memory, &route, 2, 5, false);
        let all: Vec<_> = (0..a.active()).map(|i| a.expert(i)).collect();
        let expected: [(usize, &[u32], &[u32]); 3] =
            [(0, &[0], &[1]), (2, &[0, 1], &[0, 3]), (3, &[1], &[2])];
        assert_eq!(all, expected);
        let a = Assignment::new(&mut memory, &route, 2, 5, true);
        assert_eq!(a.expert(1), (2, &[0u32, 3][..], &[0u32, 3][..]));
    }

    #[test]
    fn combine_weighs_in_slot_order() {
        let mut y = [9.0; 2];
        combine(&[1.0, 2.0, 10.0, 20.0], &[0.5, 0.25, 0.0, 1.0], &mut y);
        assert_eq!(y, [3.0, 6.0]);
    }
}
