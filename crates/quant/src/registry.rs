//! All codecs a program knows: the built-in ones and those its user added.

use crate::{CODECS, Codec, Error, Kind, Problem, families};

/// A set of codecs with unique names and GGUF type ids.
#[derive(Clone)]
pub struct Registry {
    codecs: Vec<&'static dyn Codec>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { codecs: CODECS.iter().copied().chain(families()).collect() }
    }
}

impl Registry {
    /// Adds a codec; it lives as long as the program, as codecs are few and weights point to them.
    ///
    /// # Errors
    /// [`Problem::Taken`] if its name or GGUF id is in use, [`Problem::Geometry`] if its blocks cannot be used.
    pub fn register(&mut self, codec: impl Codec + 'static) -> Result<&'static dyn Codec, Error> {
        let spec = *codec.spec();
        let geometry = |why| {
            Problem::Geometry { block_len: spec.block_len, block_bytes: spec.block_bytes, why }.at(spec.name)
        };
        if spec.block_len == 0 || spec.block_bytes == 0 {
            return Err(geometry("a block must not be empty"));
        }
        let group = match codec.kind() {
            Kind::Float => 1,
            Kind::Group16 => 16,
            Kind::Group32 => 32,
        };
        if !spec.block_len.is_multiple_of(group) {
            return Err(geometry("it must be a whole number of groups"));
        }
        if codec.rows() == 0 || !spec.block_len.is_multiple_of(codec.rows()) {
            return Err(geometry("rows that share it must have as many numbers each"));
        }
        if codec.rows() > 1 && codec.kind() != Kind::Float {
            return Err(geometry("rows may share it only if its kind is `Float`"));
        }
        if self.by_name(spec.name).is_some() {
            return Err(Problem::Taken { what: "name" }.at(spec.name));
        }
        if spec.gguf.is_some_and(|id| self.by_gguf(id).is_some()) {
            return Err(Problem::Taken { what: "GGUF type id" }.at(spec.name));
        }
        let codec: &'static dyn Codec = Box::leak(Box::new(codec));
        self.codecs.push(codec);
        Ok(codec)
    }

    /// The codec of that name.
    pub fn by_name(&self, name: &str) -> Option<&'static dyn Codec> {
        self.codecs.iter().copied().find(|c| c.spec().name == name)
    }

    /// The codec of that GGUF tensor type.
    pub fn by_gguf(&self, id: u32) -> Option<&'static dyn Codec> {
        self.codecs.iter().copied().find(|c| c.spec().gguf == Some(id))
    }

    /// All of them, built-in ones first.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Codec> + '_ {
        self.codecs.iter().copied()
    }
}
