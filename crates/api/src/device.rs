//! The devices a model can run on.

use crate::{Error, error::Kind};
use nibble_backend::Backend;
use nibble_backend_cpu::{Cpu, CpuOptions, Isa};
use nibble_backend_reference::Reference;

/// Opens a device with so many threads (all cores if `None`) and that instruction set (the best one if `None`).
pub type Open = fn(threads: Option<usize>, isa: Option<&str>) -> Result<Box<dyn Backend>, Error>;

/// A device by the name that users type.
pub struct BackendEntry {
    /// The name.
    pub name: &'static str,
    /// Opens it.
    pub open: Open,
}

/// Every device of this build, the preferred one first.
pub static BACKENDS: &[BackendEntry] = &[
    BackendEntry { name: "cpu", open: open_cpu },
    BackendEntry { name: "reference", open: |_, _| Ok(Box::new(Reference)) },
];

fn open_cpu(threads: Option<usize>, isa: Option<&str>) -> Result<Box<dyn Backend>, Error> {
    let isa = match isa {
        Some(name) => Some(Isa::by_name(name).ok_or_else(|| {
            let known = Isa::available().iter().map(|i| i.name()).collect::<Vec<_>>().join(", ");
            Error::new(
                Kind::Usage,
                format!("instruction set: expected one that this processor has ({known}), found `{name}`"),
            )
        })?),
        None => None,
    };
    Ok(Box::new(Cpu::new(CpuOptions { threads, isa, ..CpuOptions::default() })))
}

/// The backend of that name, or the preferred one for `auto`.
pub(crate) fn open(name: &str, threads: Option<usize>, isa: Option<&str>) -> Result<Box<dyn Backend>, Error> {
    let entry = match name {
        "auto" => BACKENDS.first(),
        _ => BACKENDS.iter().find(|b| b.name == name),
    };
    let known = || BACKENDS.iter().map(|b| b.name).collect::<Vec<_>>().join(", ");
    let entry = entry.ok_or_else(|| {
        Error::new(
            Kind::Usage,
            format!("device: expected auto, {}, found `{name}`, which this build has not", known()),
        )
    })?;
    (entry.open)(threads, isa)
}
