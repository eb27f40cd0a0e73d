//! The texts that are compared when nobody brings others.

use crate::side::Prompt;
use nibble_api::{Error, Kind, Model};

/// A text and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The name.
    pub name: String,
    /// The text.
    pub text: String,
}

/// 32 texts: prose, code, lists, tables, mathematics, chat, ten languages, repetition, one letter to some 500 tokens.
static DEFAULT: &str = include_str!("../prompts/default.txt");

/// The default texts.
pub fn default_texts() -> Vec<Text> {
    texts(DEFAULT)
}

/// The texts of a file in which each one stands below a line `=== NAME`. A file without such a line is one text.
pub fn texts(file: &str) -> Vec<Text> {
    let mut texts: Vec<Text> = vec![];
    for line in file.split_inclusive('\n') {
        match (line.strip_prefix("=== "), texts.last_mut()) {
            (Some(name), _) => texts.push(Text { name: name.trim().into(), text: String::new() }),
            (None, Some(text)) => text.text.push_str(line),
            (None, None) => texts.push(Text { name: "text".into(), text: line.into() }),
        }
    }
    for text in &mut texts {
        // The line break before the next mark belongs to the mark.
        text.text.truncate(text.text.strip_suffix('\n').map_or(text.text.len(), str::len));
    }
    texts
}

/// The texts as tokens of `model`, cut to `most` tokens each; texts without tokens are left out. Returns also how many
/// were cut.
///
/// # Errors
/// [`Kind::Load`] if the model came without a tokenizer, [`Kind::Usage`] if no tokens are left.
pub fn tokens(model: &Model, texts: &[Text], most: usize) -> Result<(Vec<Prompt>, usize), Error> {
    let (mut prompts, mut cut) = (vec![], 0);
    for text in texts {
        let mut tokens = model.encode(&text.text)?;
        cut += usize::from(tokens.len() > most);
        tokens.truncate(most);
        if !tokens.is_empty() {
            prompts.push(Prompt::new(&text.name, tokens));
        }
    }
    if prompts.is_empty() {
        return Err(Error::new(Kind::Usage, "prompts: expected at least one token, found none"));
    }
    Ok((prompts, cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_32_texts_of_many_lengths() {
        let texts = default_texts();
        assert_eq!(texts.len(), 32);
        assert_eq!(texts.iter().map(|t| &t.name).collect::<BTreeSet<_>>().len(), 32);
        assert!(texts.iter().all(|t| !t.text.is_empty()));
        let lengths: Vec<_> = texts.iter().map(|t| t.text.len()).collect();
        assert!(lengths.contains(&1) && lengths.iter().any(|&l| l > 2000), "{lengths:?}");
    }

    #[test]
    fn a_plain_file_is_one_text_and_marks_keep_the_lines_between() {
        assert_eq!(texts("a\nb\n"), [Text { name: "text".into(), text: "a\nb".into() }]);
        let two = texts("=== one\na\n\n=== two\n\n\n");
        assert_eq!((two[0].text.as_str(), two[1].text.as_str()), ("a\n", "\n"));
    }

    #[test]
    fn texts_are_cut_to_the_context_and_counted() {
        let model = Model::builtin().unwrap();
        let (prompts, cut) = tokens(&model, &default_texts(), 20).unwrap();
        assert!(cut > 5 && prompts.iter().all(|p| (1..=20).contains(&p.tokens.len())));
        let nothing = [Text { name: "none".into(), text: String::new() }];
        let empty = tokens(&model, &nothing, 20);
        assert!(empty.is_err() || empty.unwrap().0[0].tokens.len() == 1, "at most the first token");
    }
}
