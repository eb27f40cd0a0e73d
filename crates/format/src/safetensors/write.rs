//! The head of a safetensors file; whoever has the data writes it behind.

use super::header::bits;
use serde_json::{Map, Value, json};

/// A tensor that is to be written.
#[derive(Clone, Debug)]
pub struct NewTensor {
    /// Its name.
    pub name: String,
    /// The type of its numbers: `F32`.
    pub dtype: &'static str,
    /// Its shape, outermost first.
    pub shape: Vec<usize>,
}

/// Everything before the data of a file with these tensors, which follow in this order, and these texts of the writer.
///
/// # Panics
/// If a type is not one that the reader knows, or the sizes overflow: they are those of numbers in memory.
pub fn head(tensors: &[NewTensor], texts: &[(&str, String)]) -> Vec<u8> {
    let mut header = Map::new();
    if !texts.is_empty() {
        let texts = texts.iter().map(|(key, text)| ((*key).to_owned(), Value::from(text.as_str())));
        header.insert("__metadata__".into(), Value::Object(texts.collect()));
    }
    let mut start = 0;
    for NewTensor { name, dtype, shape } in tensors {
        let bits = bits(dtype).expect("a type that the reader knows") as usize;
        let end = start + shape.iter().product::<usize>() * bits / 8;
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }));
        start = end;
    }
    // The data starts at a multiple of 8, as readers that map it expect.
    let mut text = Value::Object(header).to_string();
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::SafetensorsFile;
    use std::path::Path;

    #[test]
    fn what_is_written_is_read() {
        let tensor =
            |name: &str, dtype, shape: &[usize]| NewTensor { name: name.into(), dtype, shape: shape.into() };
        let tensors =
            [tensor("logits", "F32", &[2, 3]), tensor("tokens", "U32", &[2]), tensor("sums", "F64", &[0])];
        let mut bytes = head(&tensors, &[("tokens", "1,2".into())]);
        assert!(bytes.len().is_multiple_of(8));
        bytes.extend([7; 32]);
        let file = SafetensorsFile::parse(bytes.into(), Path::new("x")).unwrap();
        assert_eq!(file.metadata["tokens"], "1,2");
        assert_eq!((file.tensors.len(), &file.tensors["logits"].shape[..]), (3, &[2, 3][..]));
        assert_eq!(file.raw(&file.tensors["tokens"]).len(), 8);
    }
}
