//! A file of log-probabilities, as `nibble perplexity --save-logits` and `llama-perplexity --save-all-logits` write it.

use super::stored::sha256;
use crate::{
    base_file::{BaseFile, DEPTH, is_base_file},
    side::{Form, Identity, Opening, Precision, Prompt, Side, SideEntry, vocabulary},
};
use nibble_api::{Error, Kind};
use std::path::Path;

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "log-probabilities (a file of `nibble perplexity --save-logits`)",
    means: |spec| is_base_file(Path::new(spec)),
    open: |spec, with| {
        let text = format!("file     {spec}, sha256 {}", sha256(Path::new(spec))?);
        let json = serde_json::json!({ "file": spec });
        let identity = Identity { side: "log-probabilities".into(), text, json };
        Ok(Box::new(KlBase::open(Path::new(spec), identity, with)?))
    },
};

/// Each chunk of the file is a prompt.
pub(crate) struct KlBase {
    file: BaseFile,
    identity: Identity,
    prompts: Vec<Prompt>,
}

impl KlBase {
    pub fn open(path: &Path, identity: Identity, with: &Opening<'_>) -> Result<Self, Error> {
        let file = BaseFile::open(path)?;
        vocabulary(with.model.config.vocab, file.head.vocab, &path.to_string_lossy())?;
        let bos = with.model.leading_token();
        let chunk = |(i, tokens): (usize, &[u32])| {
            let mut prompt = Prompt::new(format!("chunk {i}"), tokens.to_vec());
            if let Some(bos) = bos {
                prompt.tokens[0] = bos;
            }
            (prompt.first, prompt.end) = (file.head.first(), file.head.ctx - 1);
            prompt
        };
        let prompts = file.head.tokens.chunks_exact(file.head.ctx).enumerate().map(chunk).collect();
        Ok(Self { file, identity, prompts })
    }

    /// The tokens of the text, as its maker read it.
    pub fn tokens(&self) -> &[u32] {
        &self.file.head.tokens
    }
}

impl Side for KlBase {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn precision(&self) -> Precision {
        Precision::Rounded
    }

    fn form(&self) -> Form {
        Form::LogProbs { depth: DEPTH }
    }

    fn prompts(&self) -> Option<&[Prompt]> {
        Some(&self.prompts)
    }

    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        let Some(chunk) = self.prompts.iter().position(|p| p == prompt) else {
            let what =
                format!("{}: expected one of its own chunks, found `{}`", self.identity.side, prompt.name);
            return Err(Error::new(Kind::Run, what));
        };
        let mut numbers = vec![0.0; self.file.head.vocab];
        for position in prompt.first..prompt.end {
            self.file.read(chunk, position - prompt.first, &mut numbers)?;
            row(position, &numbers);
        }
        Ok(())
    }
}
