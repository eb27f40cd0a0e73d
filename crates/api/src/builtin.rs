//! The story model that comes with the library, so that the first command works on a machine without any model.

use crate::Error;
use nibble_format::Checkpoint;
use nibble_quant::Registry;
use nibble_tensor::Bytes;

/// Made by `nibble quantize` from the trained model; `assets/README.md` tells how.
static STORY: &[u8] = include_bytes!("../../../assets/story.gguf");

/// The file of the story model, byte by byte.
pub fn builtin_bytes() -> &'static [u8] {
    STORY
}

pub(crate) fn checkpoint() -> Result<Checkpoint, Error> {
    let name = "built-in story model";
    let mut checkpoint = nibble_format::open_bytes(Bytes::from_static(STORY), name, &Registry::default())?;
    checkpoint.files.clear(); // none that could be opened by its name
    Ok(checkpoint)
}
