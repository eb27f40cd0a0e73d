//! Any text as a chat template, rendered on a small conversation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nibble_chat::{Message, Options, Template};

fuzz_target!(|source: &str| {
    let Ok(template) = Template::parse(source, Some("<s>"), Some("</s>")) else { return };
    let messages = [Message::new("system", "Be kind."), Message::new("user", "Hi"), Message::new("assistant", "Ho")];
    let _ = template.render(&messages, &Options::default());
});
