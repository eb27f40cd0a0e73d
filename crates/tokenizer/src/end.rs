//! The tokens after which nothing more is generated.

use crate::vocab::TokenType;

/// Texts of tokens that end a turn or a text in the chat formats in use.
static NAMES: &[&str] = &[
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|call|>",
    "<|calls|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|flush|>",
    "<|im_end|>",
    "<|return|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "[EOT]",
    "[e~[",
    "_<EOT>",
];

/// Pairs of tokens beside which `<|end|>` ends a message, not the turn.
static MESSAGE_FORMATS: &[[&str; 2]] = &[["<|return|>", "<|call|>"], ["<|calls|>", "<|flush|>"]];

/// The ids that end generation, in rising order: those `named` by the file, and tokens known by their text, unless
/// plain text could spell them.
pub(crate) fn end_tokens(
    tokens: &[String],
    kind: impl Fn(usize) -> TokenType,
    named: impl Iterator<Item = u32>,
) -> Vec<u32> {
    let is_marker = |id: usize| matches!(kind(id), TokenType::Control | TokenType::UserDefined);
    let known: Vec<(u32, &str)> = tokens
        .iter()
        .enumerate()
        .filter(|(id, text)| NAMES.contains(&text.as_str()) && is_marker(*id))
        .map(|(id, text)| (id as u32, text.as_str()))
        .collect();
    let has = |name: &str| known.iter().any(|(_, text)| *text == name);
    let messages = MESSAGE_FORMATS.iter().any(|pair| pair.iter().all(|name| has(name)));
    let mut ids: Vec<u32> =
        known.iter().filter(|(_, text)| !(messages && *text == "<|end|>")).map(|(id, _)| *id).collect();
    ids.extend(named);
    ids.sort_unstable();
    ids.dedup();
    ids
}
