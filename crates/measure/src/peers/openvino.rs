//! OpenVINO GenAI, by a Python that has it.

use super::{Peer, Setup, Taken, python::Package};
use crate::case::Case;
use std::path::{Path, PathBuf};

const PACKAGE: Package = Package {
    name: "openvino",
    module: "openvino_genai",
    script: include_str!("openvino.py"),
    batches: true,
};

/// The peer.
pub struct OpenVino;

impl Peer for OpenVino {
    fn name(&self) -> &'static str {
        PACKAGE.name
    }

    fn locate(&self, given: Option<&Path>, setup: &Setup) -> Result<PathBuf, String> {
        if setup.model.extension().is_none_or(|end| end != "gguf") {
            let model = setup.model.display();
            return Err(format!("{model}: of our formats it reads GGUF only; no ratio from different files"));
        }
        PACKAGE.locate(given)
    }

    fn take(&self, program: &Path, case: &Case, setup: &Setup) -> Result<Taken, String> {
        PACKAGE.take(program, case, setup)
    }
}
