//! Sizes of tiles of cooperative matrices.

use super::{Builder, FEW};
use crate::kernels::gemm::Tiles;
use nibble_backend::Activations;

/// Workgroups that keep a large device busy.
const BUSY: usize = 120;

impl Builder<'_> {
    /// Tiles of cooperative matrices by subgroups and matrices of a subgroup, along rows and along results; `None` if products
    /// are not to use them.
    pub fn matrices(&self) -> Option<impl Fn([usize; 2], [usize; 2]) -> Tiles> {
        let caps = self.options.caps;
        let exact = self.options.limits.activations != Activations::Auto;
        let side = caps.matrix.filter(|_| !exact && !self.options.strict)?;
        Some(move |subs, each| Tiles {
            side: side as usize,
            lanes: caps.subgroup[0] as usize,
            subs,
            each,
            vectors: caps.vectors,
            workgroup: caps.workgroup as usize,
        })
    }

    /// Tiles of cooperative matrices that may be faster for the most rows than those of [`Self::coop`].
    pub fn other_tiles(&self) -> Vec<Tiles> {
        let Some(tiles) = self.matrices() else { return vec![] };
        let caps = self.options.caps;
        let all: &[_] = match caps.matrix {
            _ if caps.software => &[([2, 2], [1, 2])],
            Some(8) => &[([2, 2], [4, 2]), ([2, 4], [4, 4])],
            // Those for fewer rows, which are compiled anyway.
            _ => &[([2, 4], [4, 2]), ([2, 2], [2, 2])],
        };
        all.iter().map(|&(subs, each)| tiles(subs, each)).collect()
    }

    /// Tiles of cooperative matrices for products with `n` results a row, if they are to use them: with the most rows
    /// that each is for, rising.
    pub fn coop(&self, n: usize) -> Vec<(usize, Tiles)> {
        let Some(tiles) = self.matrices() else { return vec![] };
        let caps = self.options.caps;
        // Software takes minutes to compile what keeps a GPU busy; matrices of 8 mean a GPU with few registers.
        if caps.software {
            return vec![(usize::MAX, tiles([2, 2], [2, 2]))];
        }
        if caps.matrix == Some(8) {
            return vec![(usize::MAX, tiles([2, 2], [4, 4]))];
        }
        let mut all =
            vec![(0, tiles([2, 2], [2, 2])), (0, tiles([2, 4], [4, 2])), (0, tiles([2, 8], [4, 2]))];
        for i in 1..all.len() {
            // The larger the tile the better, once there are enough of them.
            let [rows, columns] = all[i].1.size();
            all[i - 1].0 = rows * (BUSY.div_ceil(n.div_ceil(columns)) - 1);
        }
        all[2].0 = usize::MAX;
        all.retain(|(most, _)| *most > FEW);
        all
    }
}
