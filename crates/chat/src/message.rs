//! The messages of a conversation, in the shape that chat templates read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message. A field that is absent here is absent for the template too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// What is said.
    #[serde(default, skip_serializing_if = "Content::is_absent")]
    pub content: Content,
    /// What the assistant thought before it spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The calls that the assistant made, each `{id, type, function: {name, arguments}}`. Most templates want
    /// `arguments` as an object; see [`Message::parse_arguments`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<Value>>,
    /// For a tool's answer, the `id` of its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the tool or of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Any other field, for templates that know more.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a message says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts such as `{"type": "text", "text": "..."}`.
    Parts(Vec<Value>),
    /// An explicit null, as clients send it beside `tool_calls`.
    Null,
    /// The message has no such field.
    #[default]
    #[serde(skip)]
    Absent,
}

impl Content {
    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }
}

impl<T: Into<String>> From<T> for Content {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// Turns `arguments` that are the JSON text of an object, as clients send them, into that object, as most
    /// templates want them. Other arguments stay as they are.
    pub fn parse_arguments(&mut self) {
        for call in self.tool_calls.iter_mut().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
            let Some(text) = arguments.as_str() else { continue };
            if let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) {
                *arguments = Value::Object(object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_every_field_it_came_with() {
        for text in [
            r#"{"role":"user","content":"hi"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}"#,
            r#"{"role":"assistant","reasoning_content":"hm"}"#,
            r#"{"role":"tool","content":"3","tool_call_id":"1","name":"add","cached":true}"#,
        ] {
            let message: Message = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
    }

    #[test]
    fn parse_arguments_opens_objects_and_leaves_the_rest() {
        for (given, parsed) in [
            (r#""{\"b\": 1, \"a\": 2}""#, r#"{"b":1,"a":2}"#),
            (r#""not json""#, r#""not json""#),
            (r#""[1]""#, r#""[1]""#),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            let text = |arguments| {
                format!(r#"{{"role":"a","tool_calls":[{{"function":{{"arguments":{arguments}}}}}]}}"#)
            };
            let mut message: Message = serde_json::from_str(&text(given)).unwrap();
            message.parse_arguments();
            assert_eq!(serde_json::to_string(&message).unwrap(), text(parsed));
        }
    }
}
