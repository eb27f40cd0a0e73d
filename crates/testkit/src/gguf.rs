//! Makes GGUF files byte by byte, right or wrong.

/// The parts of a GGUF file; numbers are written in the chosen byte order, and counts may lie.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Whether numbers have their high byte first.
    pub big_endian: bool,
    /// What the header says.
    pub version: u32,
    /// Where data begins.
    pub alignment: usize,
    /// What the header says, if not the truth.
    pub entry_count: Option<u64>,
    /// What the header says, if not the truth.
    pub tensor_count: Option<u64>,
    entries: Vec<Vec<u8>>,
    infos: Vec<Vec<u8>>,
    /// What follows the head.
    pub data: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            big_endian: false,
            version: 3,
            alignment: 32,
            entry_count: None,
            tensor_count: None,
            entries: Vec::new(),
            infos: Vec::new(),
            data: Vec::new(),
        }
    }

    /// With `general.architecture`, so that it can be opened.
    pub fn llama() -> Self {
        let mut builder = Self::new();
        builder.text("general.architecture", "llama");
        builder
    }

    /// A number in the byte order of the file.
    pub fn number<const N: usize>(&self, mut le_bytes: [u8; N]) -> [u8; N] {
        if self.big_endian {
            le_bytes.reverse();
        }
        le_bytes
    }

    /// A length and as many bytes.
    pub fn string(&self, text: &[u8]) -> Vec<u8> {
        [&self.number((text.len() as u64).to_le_bytes()), text].concat()
    }

    /// A key of any type with any bytes as its value.
    pub fn entry(&mut self, key: &[u8], type_id: u32, value: &[u8]) -> &mut Self {
        let entry = [self.string(key), self.number(type_id.to_le_bytes()).to_vec(), value.to_vec()].concat();
        self.entries.push(entry);
        self
    }

    /// A key with a text.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        let value = self.string(value.as_bytes());
        self.entry(key.as_bytes(), 8, &value)
    }

    /// A key with a number.
    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        let value = self.number(value.to_le_bytes());
        self.entry(key.as_bytes(), 4, &value)
    }

    /// A list of elements whose bytes are given.
    pub fn list(&mut self, key: &str, element: u32, count: u64, elements: &[u8]) -> &mut Self {
        let head = [&self.number(element.to_le_bytes())[..], &self.number(count.to_le_bytes())].concat();
        self.entry(key.as_bytes(), 9, &[&head, elements].concat())
    }

    /// A tensor info as it is given; `dims` in the order of the file, the fastest first.
    pub fn info(&mut self, name: &[u8], dims: &[u64], type_id: u32, offset: u64) -> &mut Self {
        self.info_with_n_dims(name, dims.len() as u32, dims, type_id, offset)
    }

    /// A tensor info whose number of dimensions may lie.
    pub fn info_with_n_dims(
        &mut self,
        name: &[u8],
        n_dims: u32,
        dims: &[u64],
        type_id: u32,
        offset: u64,
    ) -> &mut Self {
        let mut info = self.string(name);
        info.extend(self.number(n_dims.to_le_bytes()));
        for dim in dims {
            info.extend(self.number(dim.to_le_bytes()));
        }
        info.extend(self.number(type_id.to_le_bytes()));
        info.extend(self.number(offset.to_le_bytes()));
        self.infos.push(info);
        self
    }

    /// A tensor and its data, where they belong.
    pub fn tensor(&mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) -> &mut Self {
        let offset = self.data.len().next_multiple_of(self.alignment);
        self.data.resize(offset, 0);
        self.data.extend(bytes);
        self.info(name.as_bytes(), dims, type_id, offset as u64)
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.number(self.version.to_le_bytes()));
        file.extend(self.number(self.tensor_count.unwrap_or(self.infos.len() as u64).to_le_bytes()));
        file.extend(self.number(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes()));
        file.extend(self.entries.concat());
        file.extend(self.infos.concat());
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        file.extend(&self.data);
        file
    }
}
