//! mlx-lm, through a Python that has it. It opens safetensors directories and computes in the type of the weights.

use super::python::Python;
use crate::side::{Precision, SideEntry};

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "mlx-lm",
    means: |spec| spec == "mlx-lm",
    open: |spec, with| {
        let script = include_str!("scripts/mlx_lm.py");
        Ok(Box::new(Python::start(spec, script, Precision::Rounded, with)?))
    },
};
