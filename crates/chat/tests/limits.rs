//! Templates are outside input: what they may not do, and how they fail.

use nibble_chat::{DateTime, Error, Message, Options, Template};
use std::path::Path;

fn render(source: &str, messages: &[Message]) -> Result<String, Error> {
    Template::parse(source, None, None)?.render(messages, &Options::default())
}

#[test]
fn strftime_now_reads_the_given_clock() {
    let template = Template::parse("{{ strftime_now(\"%Y-%m-%d\") }}", None, None).unwrap();
    let options = Options { now: DateTime::from_unix(1_767_225_600), ..Options::default() };
    assert_eq!(template.render(&[], &options).unwrap(), "2026-01-01");
    assert_eq!(template.render(&[], &Options::default()).unwrap(), "1970-01-01");
}

#[test]
fn what_is_unknown_is_an_error_that_names_it() {
    for (source, name) in [
        ("a{{ strftime_later('%Y') }}", "strftime_later"),
        ("a{{ 'x' | no_filter }}", "no_filter"),
        ("a{{ 'x' is no_test }}", "no_test"),
        ("a{{ 'x'.no_method() }}", "no_method"),
        ("a{{ messages.append(1) }}", "append"),
        ("a{{ {}.update(a=1) }}", "update"),
        ("a{% if false %}{{ 'x' | no_filter }}{% endif %}{{ never() }}", "never"),
        ("{% include 'other' %}", "other"),
    ] {
        match render(source, &[]) {
            Err(Error::Unknown { problem, line: 1 }) => assert!(problem.contains(name), "{problem}"),
            Err(Error::Failed { problem, .. }) if name == "other" => {
                assert!(problem.contains(name), "{problem}")
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn a_refusal_carries_the_templates_own_message() {
    let source = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('Roles must alternate: \"' ~ m.role ~ '\" again') }}{% endif %}{{ m.content }}{% endfor %}";
    let user = || Message::new("user", "hi");
    let refused = render(source, &[user(), user()]).unwrap_err();
    assert_eq!(refused, Error::Raised("Roles must alternate: \"user\" again".into()));
    assert_eq!(refused.to_string(), "Roles must alternate: \"user\" again");
    assert_eq!(render(source, &[user(), Message::new("assistant", "ho")]).unwrap(), "hiho");
}

#[test]
fn an_error_names_the_line() {
    let error = render("a\n{{ 'x' + 1 }}", &[]).unwrap_err();
    assert!(matches!(error, Error::Failed { line: 2, .. }), "{error:?}");
    let error = Template::parse("a\n\n{% if %}", None, None).unwrap_err();
    assert!(matches!(error, Error::Syntax { line: 3, .. }), "{error:?}");
}

#[test]
fn no_template_runs_on_or_grows_without_end() {
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 4000000000 }}",
        "{{ ('a' * 100000) * 100000 }}",
        "{{ [0] * 4000000000 }}",
        "{{ range(4000000000) | list }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|string }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}{{ ns.x|tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x ~ '' }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == [ns.x] }}",
        "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x ~ '' }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{% set ns.y = ns.x %}{{ ns.y ~ '' }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set x = 'a' * 100000 %}{{ ([x] * 100000) | tojson }}",
        "{% set x = 'a' * 100000 %}{{ ([x] * 100000) | join }}",
        "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}",
        "{% set x = '%c' * 8000000 %}{{ strftime_now(x) | length }}",
        "{% set x = 'a\\n' * 100000 %}{{ x | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64) | indent(64)}}",
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% for i in [1, 2] %}{{ m(n + 1) }}{% endfor %}{% endmacro %}{{ m(0) }}",
        "{% for a in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
        "{{ 'a'.center(4000000000) }}",
        "{{ 'a'.ljust(99999999999) }}",
        "{{ '%4000000000d' | format(1) }}",
        "{{ '{:>4000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 4000000000) }}",
        "{{ [] | tojson(indent=4000000000) }}",
        "{{ 2 ** 4000000000 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set ns.x = ns.x ~ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}{{ ns.x.split('a') | length }}{% endfor %}",
    ] {
        let error = render(source, &[]).expect_err(source);
        assert!(!matches!(error, Error::Raised(_) | Error::Syntax { .. }), "{source}: {error:?}");
    }
}

#[test]
fn deep_values_are_made_and_dropped_without_overflowing_the_stack() {
    for source in [
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ REST }}",
        "{% set ns = namespace(x={}) %}{% for i in range(90000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ REST }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = ns.x + [i] %}{% endfor %}{{ REST }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = (ns.x, i) %}{% endfor %}{{ REST }}",
    ] {
        for rest in [
            "1",
            "ns.x",
            "ns.x | tojson",
            "ns.x == ns.x",
            "ns.x | list | length",
            "ns.x | sort",
            "ns.x in [1]",
        ] {
            // The result may be either; that the process lives is the point.
            let _ = render(&source.replace("REST", rest), &[]);
        }
    }
}

#[test]
fn deep_sources_are_refused() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{'a':", "}"), ("-", ""), ("not ", ""), ("1 if 1 else ", "")]
    {
        let source = format!("{{{{ {}1{} }}}}", open.repeat(50_000), close.repeat(50_000));
        let _ = render(&source, &[]);
    }
    for (open, close) in [
        ("{% if 1 %}", "{% endif %}"),
        ("{% for a in [1] %}", "{% endfor %}"),
        ("{% with %}", "{% endwith %}"),
    ] {
        let _ = render(&(open.repeat(20_000) + &close.repeat(20_000)), &[]);
    }
    for operator in ["+", "~", "*", " and ", "|string|string", ".a", "[0]", " is string"] {
        let _ = render(&format!("{{{{ 1{} }}}}", format!("{operator}1").repeat(50_000)), &[]);
        let _ = render(&format!("{{{{ 1{} }}}}", operator.repeat(50_000)), &[]);
    }
}

#[test]
fn too_large_inputs_are_refused_with_both_numbers() {
    let source = " ".repeat((1 << 20) + 1);
    let error = Template::parse(&source, None, None).unwrap_err();
    assert_eq!(error, Error::TooLarge { what: "a source in bytes", limit: 1 << 20, found: (1 << 20) + 1 });
    let message = Message::new("user", "x".repeat(65 << 20));
    assert!(matches!(render("", &[message]), Err(Error::TooLarge { .. })));
}

#[test]
fn a_long_conversation_fits_the_budget() {
    let messages: Vec<Message> = (0..4000)
        .map(|i| Message::new(if i % 2 == 0 { "user" } else { "assistant" }, format!("message {i}")))
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/chat");
    for file in ["chatml.jinja", "headers.jinja", "strict.jinja"] {
        let source = std::fs::read_to_string(folder.join(file)).unwrap();
        let text = render(&source, &messages).unwrap();
        assert!(text.contains("message 3999"), "{file}");
    }
}

/// The same numbers on every machine: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[test]
fn mutated_templates_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/chat");
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for file in ["chatml.jinja", "headers.jinja", "strict.jinja"] {
        seeds.push(std::fs::read(folder.join(file)).unwrap());
    }
    let snippets = std::fs::read_to_string(folder.join("snippets.txt")).unwrap();
    seeds.extend(snippets.split("\n====\n").map(|s| s.as_bytes().to_vec()));
    let words: [&[u8]; 22] = [
        b"{{",
        b"}}",
        b"{%",
        b"%}",
        b"{#",
        b"#}",
        b"|",
        b"(",
        b")",
        b"[",
        b"]",
        b"'",
        b"\"",
        b"\\",
        b"-1",
        b"99999999999",
        b"none",
        b" if ",
        b"\xff",
        b"\xc3\xa9",
        b".",
        b"generation",
    ];
    let mut numbers = Numbers(1);
    for _ in 0..6000 {
        let mut source = seeds[numbers.below(seeds.len())].clone();
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(source.len() + 1);
            match numbers.below(4) {
                0 => drop(source.splice(at..at, words[numbers.below(words.len())].iter().copied())),
                1 => drop(source.drain(at..(at + numbers.below(6)).min(source.len()))),
                2 if at < source.len() => source[at] = numbers.below(256) as u8,
                _ => {
                    let other = &seeds[numbers.below(seeds.len())];
                    let from = numbers.below(other.len() + 1);
                    let piece = other[from..(from + numbers.below(30)).min(other.len())].to_vec();
                    drop(source.splice(at..at, piece));
                }
            }
        }
        let source = String::from_utf8_lossy(&source);
        let messages = [Message::new("user", "hi"), Message::new("assistant", "ho")];
        let _ = render(&source, &messages);
    }
}
