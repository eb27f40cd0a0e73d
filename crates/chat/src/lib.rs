//! Messages to a prompt, through the chat template that a model brings with it.
//!
//! Templates are Jinja as Python's `transformers` runs it: blocks trimmed, `tojson` as `json.dumps`, Python's
//! methods on strings and dicts, `raise_exception` and `strftime_now`. They are outside input: a template can
//! neither hang, nor take more memory than its budget, nor reach anything but the values it is given.
//!
//! ```
//! use nibble_chat::{Message, Options, Template};
//! let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
//! let template = Template::parse(source, None, None)?;
//! assert_eq!(template.render(&[Message::new("user", "Hi")], &Options::default())?, "<user>Hi");
//! # Ok::<(), nibble_chat::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bounded;
mod error;
mod filters;
mod json;
mod markup;
mod message;
mod methods;
mod operators;
mod python;
mod source;
mod stack;
mod template;
mod time;
mod view;

pub use error::{Error, Result};
pub use message::{Content, Message};
pub use template::{Options, Template};
pub use time::DateTime;
