//! `nibble tokenize`: text to ids and back.

use crate::{
    args::TokenizeArgs,
    run::{open, read_stdin},
    terminal,
};
use nibble_api::{EncodeOptions, Error, Kind};

pub fn run(args: &TokenizeArgs) -> Result<(), Error> {
    let model = open(Some(&args.model))?;
    let tokenizer = model.tokenizer()?;
    let text = args.text.clone().map_or_else(read_stdin, Ok)?;
    let options = EncodeOptions { add_special: !args.plain, parse_special: !args.plain };
    let ids = if args.decode { parse(&text)? } else { tokenizer.encode(&text, options) };
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= tokenizer.vocab_size()) {
        let size = tokenizer.vocab_size();
        return Err(Error::new(Kind::Usage, format!("token id: expected less than {size}, found {id}")));
    }
    let out = if args.json {
        let pieces: Vec<_> = ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.piece(id))).collect();
        let text = tokenizer.decode(&ids, args.plain);
        serde_json::json!({ "tokens": ids, "pieces": pieces, "text": text }).to_string()
    } else if args.decode {
        tokenizer.decode(&ids, args.plain)
    } else {
        ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    };
    terminal::say(format_args!("{out}\n"))
}

/// Ids separated by commas or white space, with or without brackets.
fn parse(text: &str) -> Result<Vec<u32>, Error> {
    let words = text.split(|c: char| c.is_whitespace() || ",[]".contains(c)).filter(|w| !w.is_empty());
    let id = |w: &str| {
        w.parse().map_err(|_| Error::new(Kind::Usage, format!("token id: expected a number, found `{w}`")))
    };
    words.map(id).collect()
}
