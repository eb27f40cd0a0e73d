//! Rows by expert.

use super::{Case, Expected, Job, Twin, UNTOUCHED, numbers::Seeded};
use crate::{
    kernels::group::{self, NOBODY},
    shader::Shader,
};

/// Rows: more entries than a workgroup has invocations, some of these without any in the end.
const ROWS: usize = 333;

/// [`crate::kernels::group::arrange`] behind [`crate::kernels::group::count`].
#[derive(Debug)]
pub struct Arrange {
    /// Experts of a row.
    pub used: usize,
    /// Experts.
    pub experts: usize,
    /// Rows of a tile.
    pub height: usize,
}

impl Arrange {
    /// The tiles' experts and the order that the experts of all entries give.
    pub fn places(&self, experts: &[usize]) -> [Vec<u32>; 2] {
        let (mut tiles, mut order) = (vec![0], vec![]);
        for e in 0..self.experts {
            let own = (0..experts.len()).filter(|&i| experts[i] == e).map(|i| i as u32);
            order.extend(own);
            order.resize(order.len().next_multiple_of(self.height), NOBODY);
            tiles.resize(1 + order.len() / self.height, e as u32);
        }
        tiles[0] = tiles.len() as u32 - 1;
        [tiles, order]
    }
}

impl Twin for Arrange {
    fn case(&self, shader: &Shader) -> Case {
        let r = &mut Seeded::new(11);
        let mut c = Case::default();
        // One expert has half of all entries, and the last one none if there are others.
        let choices = self.experts.saturating_sub(1).max(1);
        let experts: Vec<usize> = (0..ROWS * self.used)
            .map(|_| if r.word() >> 31 == 0 { 0 } else { (r.word() >> 8) as usize % choices })
            .collect();
        let route: Vec<f64> = experts
            .chunks_exact(self.used)
            .flat_map(|row| std::iter::repeat_n(0.5, row.len()).chain(row.iter().map(|&e| e as f64)))
            .collect();
        let [tiles, order] = self.places(&experts);
        let route = c.add_floats(&route);
        let counts = c.add_output(self.experts);
        let most = group::most_tiles(experts.len(), self.experts, self.height);
        let found = [1 + most, most * self.height].map(|len| c.add_output(len));
        let words = vec![ROWS as u32];
        let grid = [self.experts, 1, 1];
        let buffers = vec![route, counts];
        c.jobs.push(Job { shader: group::count(self.used), buffers, words: words.clone(), grid });
        let buffers = vec![route, counts, found[0], found[1]];
        c.jobs.push(Job { shader: shader.clone(), buffers, words, grid });
        for (buffer, (mut words, len)) in
            found.into_iter().zip([(tiles, 1 + most), (order, most * self.height)])
        {
            words.resize(len, UNTOUCHED.to_bits());
            c.expected.push(Expected::Words { buffer, words });
        }
        c
    }
}
