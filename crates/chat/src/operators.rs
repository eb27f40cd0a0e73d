//! Operators whose meaning the engine does not let us give, rewritten in the source of a tag.
//!
//! - `a + b` becomes `(a)|`[`PLUS`]`(b)`. The operands of a `+` reach to the next sign or word that binds weaker, at the
//!   same level of brackets; a sum goes on as `(a)|`[`PLUS`]`(b)|`[`PLUS`]`(c)`.
//! - `a ~ b` becomes `a ~''~ b`: Python gives a plain string, the engine a safe one if both sides are.

/// The filter that adds; see [`crate::markup::plus`].
pub const PLUS: &str = "__plus__";

/// A word, a string, a sign, or white space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Word,
    String,
    Sign,
}

/// What is known at one level of brackets.
#[derive(Default)]
struct Level {
    /// Where the left operand of a `+` would begin in the output; `None` before its first token.
    start: Option<usize>,
    /// Whether the argument of a [`PLUS`] is open.
    argument: bool,
}

/// Rewrites what stands between the delimiters of a tag.
pub fn rewrite(code: &str, out: &mut String) {
    let mut levels = vec![Level::default()];
    let mut previous = "";
    let mut after_operand = false; // so that a sign is binary
    let mut in_test = false; // after `is`, and `not` behind it
    let mut rest = code;
    while !rest.is_empty() {
        let (kind, len) = token(rest);
        let (text, after) = rest.split_at(len);
        rest = after;
        if kind == Kind::Space {
            out.push_str(text);
            continue;
        }
        if levels.is_empty() {
            levels.push(Level::default()); // more brackets closed than opened: the engine will refuse it
        }
        let level = levels.last_mut().expect("there is one by now");
        let keyword = kind == Kind::Word && previous != "." && !in_test && is_keyword(text);
        let operand = match kind {
            Kind::Word => !(keyword || in_test && text == "not"),
            kind => kind == Kind::String,
        };
        match (kind, text) {
            (Kind::Sign, "(" | "[" | "{") => {
                level.begin(out);
                out.push_str(text);
                levels.push(Level::default());
            }
            (Kind::Sign, ")" | "]" | "}") => {
                level.close(out);
                out.push_str(text);
                levels.pop();
            }
            (Kind::Sign, "+") if after_operand && level.start.is_some() => level.add(out),
            (Kind::Sign, "-") if after_operand => {
                if level.argument {
                    out.push(')');
                    level.argument = false;
                }
                out.push('-');
            }
            (Kind::Sign, "~") => out.push_str("~''~"),
            _ if keyword || (kind == Kind::Sign && is_border(text, after_operand)) => {
                level.close(out);
                out.push_str(text);
            }
            _ => {
                level.begin(out);
                out.push_str(text);
            }
        }
        in_test = text == "is" && after_operand && previous != "." || in_test && text == "not";
        after_operand = matches!(text, ")" | "]" | "}") || operand && !in_test;
        previous = text;
    }
    if let Some(level) = levels.last_mut() {
        level.close(out);
    }
}

impl Level {
    fn begin(&mut self, out: &str) {
        self.start.get_or_insert(out.len());
    }

    /// Ends the operands.
    fn close(&mut self, out: &mut String) {
        if self.argument {
            out.push(')');
        }
        *self = Self::default();
    }

    fn add(&mut self, out: &mut String) {
        if self.argument {
            out.push(')');
        } else {
            out.insert(self.start.unwrap_or(out.len()), '(');
            out.push(')');
        }
        out.push('|');
        out.push_str(PLUS);
        out.push('(');
        self.argument = true;
    }
}

/// Words that bind weaker than `+`.
fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "or"
            | "not"
            | "in"
            | "if"
            | "elif"
            | "else"
            | "recursive"
            | "set"
            | "for"
            | "do"
            | "call"
            | "filter"
    )
}

/// Signs that bind weaker than `+`, and stars before arguments.
fn is_border(sign: &str, after_operand: bool) -> bool {
    match sign {
        "." | "|" | "-" => false,
        "*" | "**" | "/" | "//" | "%" => !after_operand,
        _ => true,
    }
}

/// Kind and length of what `code` begins with.
fn token(code: &str) -> (Kind, usize) {
    let length = |end: Option<usize>| end.unwrap_or(code.len());
    let first = code.chars().next().unwrap_or_default();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    match first {
        c if c.is_whitespace() => (Kind::Space, length(code.find(|c: char| !c.is_whitespace()))),
        c if is_word(c) => (Kind::Word, length(code.find(|c| !is_word(c)))),
        '"' | '\'' => {
            let mut escaped = false;
            let end = code.char_indices().skip(1).find(|&(_, c)| {
                let ends = c == first && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            (Kind::String, length(end.map(|(at, _)| at + 1)))
        }
        _ => {
            let two = ["**", "//", "==", "!=", "<=", ">="].iter().any(|sign| code.starts_with(sign));
            (Kind::Sign, if two { 2 } else { first.len_utf8() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn operands_reach_to_what_binds_weaker() {
        for (code, expected) in [
            ("a+b", "(a)|__plus__(b)"),
            ("a + b + c", "(a )|__plus__( b )|__plus__( c)"),
            ("a - b+c - d+e", "((a - b)|__plus__(c )- d)|__plus__(e)"),
            ("a|f+b.c[d+e]*-g", "(a|f)|__plus__(b.c[(d)|__plus__(e)]*-g)"),
            ("not a+b in c+d", "not (a)|__plus__(b )in (c)|__plus__(d)"),
            ("a is not in b+c", "(a is not in b)|__plus__(c)"),
            ("f(a+b, c=d+e, *g+h)", "f((a)|__plus__(b), c=(d)|__plus__(e), *(g)|__plus__(h))"),
            ("{a+b: c+d}", "{(a)|__plus__(b): (c)|__plus__(d)}"),
            ("a~b+c~'~+'", "(a~''~b)|__plus__(c~''~'~+')"),
            ("a if b+c else d+e", "a if (b)|__plus__(c )else (d)|__plus__(e)"),
            ("d.if+e.is+f", "(d.if)|__plus__(e.is)|__plus__(f)"),
            ("+a", "+a"),
            ("a)+b]", "a)+b]"),
            ("'a", "'a"),
        ] {
            let mut out = String::new();
            rewrite(code, &mut out);
            assert_eq!(out, expected, "{code}");
        }
    }
}
