//! What is rewritten in a template before the engine parses it, in tags alone: not in text, comments or raw blocks.
//!
//! - `{% generation %}`, by which `transformers` marks what the assistant wrote, renders as its body in a scope of its
//!   own, which is what `{% with %}` does.
//! - `{% set a = b %}` becomes `{% set a = (b)|`[`BOUNDED`]` %}`: loops grow values by assignment alone, and the
//!   engine recurses over them without counting steps.
//! - `+` and `~` are rewritten as [`operators`] says, so that safe strings are added as in Python.
//! - `\/` in a string stays as it is in Python; the engine, as JSON does, would drop the backslash.

use crate::operators;

/// The filter that every assigned value goes through; see [`crate::bounded`].
pub const BOUNDED: &str = "__bounded__";

/// Most words and signs in one tag, and most `elif` in one template, that are taken; in use are below 60 and 25. Each
/// may nest the parsed template once more.
pub const MAX_TOKENS: usize = 1024;

/// A source as the engine should read it.
pub struct Source {
    pub text: String,
    /// The most words and signs in one tag, or the number of `elif` tags if that is more: what bounds how deep the
    /// parsed template nests.
    pub most_tokens: usize,
}

/// Rewrites and measures a template.
pub fn rewrite(source: &str) -> Source {
    let mut out = String::with_capacity(source.len());
    let mut most_tokens = 0;
    let mut elifs = 0;
    let mut rest = source;
    while let Some(open) = find_open(rest) {
        let (text, tag) = rest.split_at(open);
        out.push_str(text);
        let (tag, after) = tag.split_at(tag_end(tag));
        rest = after;
        if tag.starts_with("{#") {
            out.push_str(tag);
            continue;
        }
        let tokens = tokens(tag);
        most_tokens = most_tokens.max(tokens);
        if tokens > MAX_TOKENS {
            continue; // it will be refused
        }
        match statement_name(tag) {
            Some("generation") => out.push_str(&tag.replacen("generation", "with", 1)),
            Some("endgeneration") => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            Some("raw") => {
                out.push_str(tag);
                let end = raw_end(after);
                out.push_str(&after[..end]);
                rest = &after[end..];
            }
            Some("set") => match split_assignment(tag) {
                Some((target, value, close)) => {
                    out.push_str(target);
                    out.push('(');
                    push_code(value, &mut out);
                    out.push_str(")|");
                    out.push_str(BOUNDED);
                    out.push_str(close);
                }
                None => push_tag(tag, &mut out),
            },
            name => {
                elifs += usize::from(name == Some("elif"));
                push_tag(tag, &mut out);
            }
        }
    }
    out.push_str(rest);
    Source { text: out, most_tokens: most_tokens.max(elifs) }
}

/// How many words and signs a tag has; a string counts as one, as do its quotes.
fn tokens(tag: &str) -> usize {
    let mut count = 0;
    let mut quote = None;
    let mut escaped = false;
    let mut word = false;
    for c in tag.chars() {
        if let Some(q) = quote {
            if !escaped && c == q {
                quote = None;
            }
            escaped = c == '\\' && !escaped;
            continue;
        }
        let in_word = c.is_alphanumeric() || c == '_';
        let goes_on = word && in_word;
        count += usize::from(!c.is_whitespace() && !goes_on);
        word = in_word;
        if matches!(c, '"' | '\'') {
            quote = Some(c);
        }
    }
    count
}

/// Writes a tag with what stands in it as [`push_code`] does.
fn push_tag(tag: &str, out: &mut String) {
    let open = if tag[2..].starts_with(['-', '+']) { 3 } else { 2 };
    let close = match tag.strip_suffix("%}").or(tag.strip_suffix("}}")) {
        Some(inner) if inner.len() >= open => inner.strip_suffix(['-', '+']).unwrap_or(inner).len().max(open),
        _ => return out.push_str(tag), // it never ends
    };
    out.push_str(&tag[..open]);
    push_code(&tag[open..close], out);
    out.push_str(&tag[close..]);
}

/// Writes an expression or statement with its operators rewritten, and with each `\/` as `\\/`. Outside strings there is
/// no backslash in valid Jinja.
fn push_code(code: &str, out: &mut String) {
    let mut rewritten = String::with_capacity(code.len());
    operators::rewrite(code, &mut rewritten);
    let mut escaped = false;
    for c in rewritten.chars() {
        if escaped && c == '/' {
            out.push('\\');
        }
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
}

/// A `set` tag up to and with its `=`, the value, and the tag's end; `None` if it assigns a block.
fn split_assignment(tag: &str) -> Option<(&str, &str, &str)> {
    let open = tag.find("set")?;
    let equals = open + tag[open..].find(['=', '(', '\'', '"', '|'])?;
    let end = tag.strip_suffix("%}")?.len();
    let end = if tag[..end].ends_with(['-', '+']) { end - 1 } else { end };
    let value = tag.get(equals + 1..end)?;
    let assigns = tag[equals..].starts_with('=') && !value.trim().is_empty();
    assigns.then(|| (&tag[..=equals], value, &tag[end..]))
}

/// Offset of the next `{%`, `{{` or `{#`.
fn find_open(text: &str) -> Option<usize> {
    text.as_bytes().windows(2).position(|pair| pair[0] == b'{' && matches!(pair[1], b'%' | b'{' | b'#'))
}

/// Offset just past the tag that `text` starts with, or its length if the tag never ends.
fn tag_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let close: &[u8; 2] = match bytes[1] {
        b'%' => b"%}",
        b'{' => b"}}",
        _ => b"#}",
    };
    let mut at = 2;
    let mut quote = None;
    let mut braces = 0usize;
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(q) if byte == q => quote = None,
            Some(_) => {}
            None if close == b"#}" => {
                if bytes[at..].starts_with(close) {
                    return at + 2;
                }
            }
            None if braces == 0 && bytes[at..].starts_with(close) => return at + 2,
            None => match byte {
                b'"' | b'\'' => quote = Some(byte),
                b'{' => braces += 1,
                b'}' => braces = braces.saturating_sub(1),
                _ => {}
            },
        }
        at += 1;
    }
    bytes.len()
}

/// The first word of a `{% ... %}` statement.
fn statement_name(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
    Some(&inner[..end])
}

/// Offset of the `{% endraw %}` that ends a raw block, or the length of the text.
fn raw_end(text: &str) -> usize {
    let mut at = 0;
    while let Some(found) = text[at..].find("{%") {
        at += found;
        if statement_name(&text[at..]) == Some("endraw") {
            return at;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn only_statements_are_rewritten() {
        for (source, expected) in [
            ("{% generation %}a{%- endgeneration -%}", "{% with %}a{%- endwith -%}"),
            ("{%-generation%}{%+ endgeneration %}", "{%-with%}{%+ endwith %}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{{ \"\\\"}} {% generation %}\" }}", "{{ \"\\\"}} {% generation %}\" }}"),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% with %}",
            ),
            (
                "{% set x = {'a': {}} %}{%set a.b='%}'-%}",
                "{% set x =( {'a': {}} )|__bounded__%}{%set a.b=('%}')|__bounded__-%}",
            ),
            ("{% set x %}{% set x | f(a=1) %}{% set x = %}", "{% set x %}{% set x | f(a=1) %}{% set x = %}"),
            ("{% set a, b = 1, 2 +%}{%- set", "{% set a, b =( 1, 2 )|__bounded__+%}{%- set"),
            ("{% if generation == 1 %}", "{% if generation == 1 %}"),
            ("{{ {'a': {}}}}{% generation %}", "{{ {'a': {}}}}{% with %}"),
            (r"{{ '\/' }}\/{# \/ #}", r"{{ '\\/' }}\/{# \/ #}"),
            (r"{{ '\\/' }}", r"{{ '\\/' }}"),
            ("{% generation", "{% with"),
            ("{% raw %}{%", "{% raw %}{%"),
            ("{", "{"),
            ("é{%é", "é{%é"),
        ] {
            assert_eq!(rewrite(source).text, expected, "{source}");
        }
    }

    #[test]
    fn tokens_are_counted_outside_strings() {
        for (source, most) in [
            ("no tags: a b c d e f g h i", 0),
            ("{{ a }}{{ a.b }}", 7),
            ("{{ 'a b \\' c' }}", 5),
            ("{# a b c d e f #}", 0),
            ("{%if a%}{%elif b%}{%endif%}", 6),
        ] {
            assert_eq!(rewrite(source).most_tokens, most, "{source}");
        }
        assert_eq!(rewrite(&"{%elif b%}".repeat(70)).most_tokens, 70);
    }
}
