//! A number that is none is never lost on the way to the logits, where everybody looks.

mod common;

use common::{cpu, open};
use nibble_backend::{Activations, Backend, KvType, Limits};
use nibble_testkit::{TempDir, damage, ops, tiny};

#[test]
fn damage_in_any_weight_shows_in_the_logits_and_harms_nobody_else() {
    let cpu = cpu(2);
    let dir = TempDir::new("damage-cpu");
    let settings = [
        (Activations::Auto, KvType::F16, "q8_0"),
        (Activations::F32, KvType::Q4_0, "f32"),
        (Activations::Auto, KvType::F16, "f32"),
        (Activations::Auto, KvType::Q8_0, "q8_0"),
    ];
    for (tiny, (activations, kv, encoding)) in tiny::all().into_iter().zip(settings) {
        for (name, file) in damage::files(&tiny, encoding) {
            let path = dir.file("model.gguf");
            std::fs::write(&path, file).unwrap();
            let plan = || cpu.compile(&open(&path).graph, &damage::limits_of(activations, kv)).unwrap();
            let lost = damage::unnoticed(plan());
            assert!(lost.is_empty(), "{}, `{name}`, {kv}: not seen in steps of {lost:?}", tiny.name);
            if name == "token_embd.weight" {
                assert!(!damage::harms(plan()), "{}, {kv}: another sequence is damaged", tiny.name);
            }
        }
    }
}

#[test]
fn a_sink_that_is_no_number_shows_in_its_head_alone() {
    let cpu = cpu(2);
    for (kv, activations) in [(KvType::F16, Activations::Auto), (KvType::Q8_0, Activations::F32)] {
        let limits = Limits { kv, activations, check_finite: false, ..ops::limits(64) };
        let mut plan = cpu.compile(&damage::sink(), &limits).unwrap();
        assert!(damage::sink_shows(&mut *plan), "{kv}");
    }
}
