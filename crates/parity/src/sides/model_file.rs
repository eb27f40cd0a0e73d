//! Another model file: its reference run.

use crate::{
    side::{Opening, Side, SideEntry, vocabulary},
    sides::device::reference_of,
};
use nibble_api::{Error, Model, Registry};
use std::path::Path;

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "a model (a .gguf file or a directory)",
    means: |spec| Path::new(spec).exists(),
    open,
};

fn open(spec: &str, with: &Opening<'_>) -> Result<Box<dyn Side>, Error> {
    let model = Model::open(Path::new(spec), &Registry::default())?;
    vocabulary(with.model.config.vocab, model.config.vocab, spec)?;
    Ok(Box::new(reference_of(model, with)?))
}
