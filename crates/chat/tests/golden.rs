//! Renderings against those of Python's jinja2, which `golden/chat_templates.py` made.

use nibble_chat::{DateTime, Error, Message, Options, Template};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The moment that `golden/chat_templates.py` calls now: 2024-07-06 05:04:03.
const NOW: i64 = 1_720_242_243;

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: bool,
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct Expected {
    bos: String,
    eos: String,
    conversations: BTreeMap<String, Conversation>,
    templates: BTreeMap<String, BTreeMap<String, Outcome>>,
    values: Value,
    snippets: Vec<Snippet>,
}

#[derive(Deserialize)]
struct Snippet {
    source: String,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
struct Others {
    templates: BTreeMap<String, OtherTemplate>,
}

#[derive(Deserialize)]
struct OtherTemplate {
    sha256: String,
    results: BTreeMap<String, Outcome>,
}

/// Errors of Python where the engine is lenient: `none` is an empty list to loop over, and an iterator has a JSON form.
const LENIENT: [&str; 2] = [
    "TypeError: 'NoneType' object is not iterable",
    "TypeError: Object of type generator is not JSON serializable",
];

/// Starts of constructs that Python renders and the engine refuses: there is an error, never another text.
const REFUSED: [&str; 9] = [
    "{{ '%",                         // formatting by operator
    "{{ +",                          // unary plus
    "{% macro m(a) %}{{ varargs }}", // macros that take any argument
    "{% set c = cycler",             // lipsum, cycler and joiner
    "{{ 'abcdef' | truncate",
    "{{ 'a b' | urlencode",
    "{{ 'x' | pprint",
    "{{ 'x' | xmlattr",
    "{{ 'x' | striptags",
];

/// What Python made of a template: a text, the hash of a text, or an error.
#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Text { text: String },
    Hash { sha256: String, bytes: usize },
    Error { error: String, raised: bool },
}

impl Outcome {
    /// `None` if `found` is the same, else what differs.
    fn difference(&self, found: &Result<String, Error>) -> Option<String> {
        match (self, found) {
            (Self::Error { error, .. }, Ok(_)) if LENIENT.contains(&error.as_str()) => None,
            (Self::Text { text }, Ok(found)) if text == found => None,
            (Self::Hash { sha256, bytes }, Ok(found)) if *bytes == found.len() && *sha256 == hash(found) => {
                None
            }
            (Self::Error { error, raised: true }, Err(Error::Raised(found))) if error == found => None,
            (Self::Error { raised: false, .. }, Err(found)) if !matches!(found, Error::Raised(_)) => None,
            (Self::Text { text }, found) => Some(format!("expected {text:?}\n     found {found:?}")),
            (Self::Hash { bytes, .. }, Ok(found)) => {
                Some(format!("expected {bytes} bytes, found {}", found.len()))
            }
            (Self::Hash { bytes, .. }, found) => Some(format!("expected {bytes} bytes, found {found:?}")),
            (Self::Error { error, .. }, found) => {
                Some(format!("expected error {error:?}\n     found {found:?}"))
            }
        }
    }
}

fn hash(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn expected() -> Expected {
    let text = std::fs::read_to_string(root().join("golden/chat/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn render(expected: &Expected, source: &str, conversation: &Conversation) -> Result<String, Error> {
    let template = Template::parse(source, Some(&expected.bos), Some(&expected.eos))?;
    let options = Options {
        tools: conversation.tools.as_deref(),
        add_generation_prompt: conversation.add_generation_prompt,
        extra: Some(&conversation.extra),
        now: DateTime::from_unix(NOW),
    };
    template.render(&conversation.messages, &options)
}

fn report(differences: &[String]) {
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn our_templates_render_as_in_python() {
    let expected = expected();
    let mut differences = Vec::new();
    for (file, results) in &expected.templates {
        let source = std::fs::read_to_string(root().join("golden/chat").join(file)).unwrap();
        for (name, outcome) in results {
            let found = render(&expected, &source, &expected.conversations[name]);
            differences.extend(outcome.difference(&found).map(|d| format!("{file} {name}: {d}")));
        }
    }
    assert!(expected.templates.len() >= 3);
    report(&differences);
}

#[test]
fn each_construct_renders_as_in_python() {
    let expected = expected();
    let mut differences = Vec::new();
    for Snippet { source, outcome } in &expected.snippets {
        let conversation = Conversation {
            messages: Vec::new(),
            tools: None,
            add_generation_prompt: true,
            extra: Map::from_iter([("v".into(), expected.values.clone())]),
        };
        let found = render(&expected, source, &conversation);
        if REFUSED.iter().any(|start| source.starts_with(start)) && found.is_err() {
            continue;
        }
        differences.extend(outcome.difference(&found).map(|d| format!("{source:?}: {d}")));
    }
    report(&differences);
}

/// Templates of other projects, which are not part of this repository: see `golden/chat_templates.py`.
#[test]
fn templates_in_use_render_as_in_python() {
    let folder = root().join("target/test-data/templates");
    if !folder.is_dir() {
        eprintln!("SKIPPED: templates in use: no folder target/test-data/templates");
        return;
    }
    let expected = expected();
    let text = std::fs::read_to_string(root().join("golden/chat_templates.json")).unwrap();
    let others: Others = serde_json::from_str(&text).unwrap();
    let mut differences = Vec::new();
    for (file, template) in &others.templates {
        let Ok(source) = std::fs::read_to_string(folder.join(file)) else {
            eprintln!("SKIPPED: template {file}: not in target/test-data/templates");
            continue;
        };
        if hash(&source) != template.sha256 {
            differences.push(format!("{file}: not the file that the hashes were made from"));
            continue;
        }
        for (name, outcome) in &template.results {
            let found = render(&expected, &source, &expected.conversations[name]);
            if let Some(difference) = outcome.difference(&found) {
                let stem = file.trim_end_matches(".jinja");
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}.{name}.txt"));
                std::fs::write(&path, found.unwrap_or_default()).unwrap();
                differences.push(format!("{file} {name}: {difference} (see {})", path.display()));
            }
        }
    }
    report(&differences);
}
