//! The bytes that each token stands for.

/// The bytes of all tokens, one after another.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
    /// The first space of a text belongs to the encoding, not to the text.
    pub strip_start: bool,
    /// So does the first space after a special token.
    pub strip_after_special: bool,
}

impl Pieces {
    /// No tokens yet.
    pub fn new(strip_start: bool, strip_after_special: bool) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), special: Vec::new(), strip_start, strip_after_special }
    }

    /// Appends the next token; `special` ones are no text.
    pub fn push(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.special.push(special);
    }

    /// The bytes of token `id`; none past the vocabulary.
    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }

    /// Whether token `id` is special.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}
