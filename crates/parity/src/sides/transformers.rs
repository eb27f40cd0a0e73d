//! Hugging Face transformers in float32, through a Python that has it and torch. It opens safetensors directories and
//! GGUF files.

use super::python::Python;
use crate::side::{Precision, SideEntry};

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "transformers",
    means: |spec| spec == "transformers",
    open: |spec, with| {
        let script = include_str!("scripts/transformers.py");
        Ok(Box::new(Python::start(spec, script, Precision::Exact, with)?))
    },
};
