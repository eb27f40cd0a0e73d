//! Chat templates of the file.

use crate::common::open;
use nibble_api::{Error, Message, Model};
use nibble_testkit::tiny;

fn with_template(source: &str) -> Model {
    let mut t = tiny::llama();
    t.set_key("tokenizer.chat_template", source);
    open(&t)
}

fn text(model: &Model, messages: &[Message]) -> Result<String, Error> {
    let ids = model.encode_chat(messages)?;
    Ok(model.tokenizer()?.decode(&ids, false))
}

#[test]
fn a_template_knows_the_day_and_says_what_it_does_not_know() {
    let today = text(&with_template("{{ strftime_now('%Y-%m-%d') }}"), &[]).unwrap();
    let date = today.strip_prefix("<s>").expect("the model wants one");
    let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00");
    assert!(date > "2025", "{date}");
    let refused = text(&with_template("{{ bos_token }}{{ no_such_function() }}"), &[]).unwrap_err();
    assert!(refused.to_string().contains("no_such_function"), "{refused}");
}

#[test]
fn a_templates_own_refusal_is_the_error_and_nothing_is_encoded() {
    let model = with_template(
        "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
         {{ raise_exception('Roles must alternate!') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    );
    let [user, assistant] = ["user", "assistant"].map(|role| Message::new(role, "the heart"));
    let refused = text(&model, &[user.clone(), user.clone()]).unwrap_err();
    assert!(refused.to_string().contains("Roles must alternate!"), "{refused}");
    let said = text(&model, &[user, assistant]).unwrap();
    assert_eq!(said, "<s>[user]the heart[assistant]the heart", "one <s>, the template's own");
}
