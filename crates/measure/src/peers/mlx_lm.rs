//! mlx-lm, by a Python that has it.

use super::{Peer, Setup, Taken, python::Package};
use crate::case::Case;
use std::path::{Path, PathBuf};

const PACKAGE: Package =
    Package { name: "mlx-lm", module: "mlx_lm", script: include_str!("mlx_lm.py"), batches: false };

/// The peer.
pub struct MlxLm;

impl Peer for MlxLm {
    fn name(&self) -> &'static str {
        PACKAGE.name
    }

    fn locate(&self, given: Option<&Path>, setup: &Setup) -> Result<PathBuf, String> {
        if !setup.model.is_dir() {
            let model = setup.model.display();
            return Err(format!("{model}: it reads directories only; no ratio from different files"));
        }
        PACKAGE.locate(given)
    }

    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        PACKAGE.take(program, case, setup)
    }
}
