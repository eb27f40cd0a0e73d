//! A chat template, ready to render.

use crate::error::Raised;
use crate::json::to_template;
use crate::{DateTime, Error, Message, Result, filters, methods, source, stack};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, State, UndefinedBehavior, Value};
use serde_json::Map;

/// Longest template that is taken; the longest in use are below 40 KB.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Stack for parsing and rendering within these limits; the deepest values that were measured take half a KB a level.
const STACK_BYTES: usize = 64 << 20;
/// Most that the messages, tools and extra values may take as JSON.
const MAX_INPUT_BYTES: usize = 32 << 20;
/// Steps that a rendering may take: some in any case, more for each byte of its input, up to a limit. 64 bytes of
/// text count as one step, so this bounds memory too.
const BASE_STEPS: u64 = 1 << 20;
const STEPS_PER_BYTE: u64 = 16;
const MAX_STEPS: u64 = 1 << 22;
const NAME: &str = "chat";

/// A parsed chat template with the special tokens of its model.
#[derive(Debug, Clone)]
pub struct Template {
    env: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// What a template is given beside the messages.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Tool descriptions in the shape of the OpenAI API; `None` is `none` for the template.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Whether the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// More variables by name, such as `enable_thinking`. They go before all others of the same name.
    pub extra: Option<&'a Map<String, serde_json::Value>>,
    /// The wall clock that `strftime_now` reads.
    pub now: DateTime,
}

impl Default for Options<'_> {
    /// No tools, a generation prompt, nothing more, and the first second of 1970.
    fn default() -> Self {
        Self { tools: None, add_generation_prompt: true, extra: None, now: DateTime::from_unix(0) }
    }
}

impl Template {
    /// Parses a template. The tokens are what it sees as `bos_token` and `eos_token`; `None` is undefined there,
    /// which prints as nothing.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::Unknown`] for a filter or test that does not exist, or [`Error::TooLarge`].
    pub fn parse(source: &str, bos_token: Option<&str>, eos_token: Option<&str>) -> Result<Self> {
        limit("a source in bytes", MAX_SOURCE_BYTES, source.len())?;
        let parsed = source::rewrite(source);
        limit("a tag in words and signs, or `elif` tags,", source::MAX_TOKENS, parsed.most_tokens)?;
        let env = stack::run(STACK_BYTES, || {
            let parsed = environment().and_then(|mut env| {
                env.add_template_owned(NAME, parsed.text)?;
                Ok(env)
            });
            parsed.map_err(|error| Error::from_engine(&error, 0))
        })?;
        Ok(Self { env, bos_token: bos_token.map(Into::into), eos_token: eos_token.map(Into::into) })
    }

    /// The prompt for `messages`.
    ///
    /// # Errors
    /// [`Error::Raised`] with the template's own message if it refuses the messages; [`Error::Unknown`],
    /// [`Error::Failed`], [`Error::Endless`] or [`Error::TooLarge`] if it cannot be rendered.
    pub fn render(&self, messages: &[Message], options: &Options<'_>) -> Result<String> {
        let variables = self.variables(messages, options)?;
        let bytes = variables.to_string().len();
        limit("messages, tools and values in bytes of JSON", MAX_INPUT_BYTES, bytes)?;
        let budget = (BASE_STEPS + STEPS_PER_BYTE * bytes as u64).min(MAX_STEPS);
        let mut env = self.env.clone();
        env.set_fuel(Some(budget));
        let now = options.now;
        env.add_function("strftime_now", move |state: &State, format: &str| {
            // A code of two bytes becomes up to 24; paid before it is written.
            state.consume_fuel(format.len() as u64 / 5)?;
            Ok::<_, minijinja::Error>(now.format(format))
        });
        stack::run(STACK_BYTES, || {
            let text = env.get_template(NAME).and_then(|template| template.render(to_template(&variables)));
            text.map_err(|error| Error::from_engine(&error, budget))
        })
    }

    /// All variables of a rendering, as a JSON object.
    fn variables(&self, messages: &[Message], options: &Options<'_>) -> Result<serde_json::Value> {
        let mut variables = Map::new();
        let messages = serde_json::to_value(messages).map_err(|error| Error::Failed {
            line: 0,
            problem: format!("the messages are not JSON: {error}"),
        })?;
        variables.insert("messages".into(), messages);
        variables.insert("tools".into(), options.tools.map(<[_]>::to_vec).into());
        variables.insert("documents".into(), serde_json::Value::Null);
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        for (name, token) in [("bos_token", &self.bos_token), ("eos_token", &self.eos_token)] {
            if let Some(token) = token {
                variables.insert(name.into(), token.as_str().into());
            }
        }
        for (name, value) in options.extra.into_iter().flatten() {
            variables.insert(name.clone(), value.clone());
        }
        Ok(serde_json::Value::Object(variables))
    }
}

fn limit(what: &'static str, limit: usize, found: usize) -> Result<()> {
    if found > limit { Err(Error::TooLarge { what, limit, found }) } else { Ok(()) }
}

/// The engine, set up as `transformers` sets up Jinja.
fn environment() -> std::result::Result<Environment<'static>, minijinja::Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_unknown_method_callback(methods::call);
    env.add_function("raise_exception", |message: Value| -> std::result::Result<Value, minijinja::Error> {
        let message = message.to_string();
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    env.remove_global("debug");
    filters::install(&mut env);
    Ok(env)
}
