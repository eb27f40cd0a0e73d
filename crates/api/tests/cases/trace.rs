//! Traces: what the file says of a run, on every device.

use crate::common::{answer, greedy, options, with_file};
use nibble_api::{Model, OpenOptions, Options, Registry, Trace, Tracer, present};
use nibble_testkit::{TempDir, tiny};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

/// A complete event: category, name, thread, start and end in nanoseconds, figures.
#[derive(Debug)]
struct Event {
    category: String,
    name: String,
    thread: u64,
    start: u64,
    end: u64,
    args: Value,
}

fn events(path: &Path) -> Vec<Event> {
    let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).expect("JSON");
    let all = file["traceEvents"].as_array().unwrap();
    let ns = |x: &Value| (x.as_f64().unwrap() * 1e3).round() as u64;
    let text = |x: &Value| x.as_str().unwrap().to_owned();
    let complete = all.iter().filter(|e| e["ph"] == "X").map(|e| {
        let start = ns(&e["ts"]);
        Event {
            category: text(&e["cat"]),
            name: text(&e["name"]),
            thread: e["tid"].as_u64().unwrap(),
            start,
            end: start + ns(&e["dur"]),
            args: e["args"].clone(),
        }
    });
    let events: Vec<_> = complete.collect();
    let named: BTreeSet<_> =
        all.iter().filter(|e| e["ph"] == "M").map(|e| e["tid"].as_u64().unwrap()).collect();
    assert_eq!(named, events.iter().map(|e| e.thread).collect(), "every thread has a name");
    events
}

/// What opening a model and starting it takes.
const LOAD: [&str; 5] = ["open and map", "build the graph", "read the tokenizer", "self-check", "compile"];

/// A run of a tiny model that is traced from opening to its last token.
fn traced(t: &tiny::Tiny, device: &str, path: &Path) {
    let trace = Trace::create(path).unwrap();
    let tracer: Option<Arc<dyn Tracer>> = Some(trace.clone());
    let open = OpenOptions { tracer: tracer.clone(), ..OpenOptions::default() };
    let codecs = Registry::default();
    let model = with_file(&t.gguf(), |file| Model::open_with(file, &codecs, &open).unwrap());
    let run = Options { device: device.into(), prefill_chunk: Some(16), tracer, ..options() };
    let tokens = answer(&mut model.start(&run).unwrap(), greedy(&tiny::prompt(1, 20), 4)).tokens;
    assert_eq!(tokens.len(), 4);
    trace.flush().unwrap();
    assert_eq!(trace.lost(), 0);
    let times = trace.op_times();
    assert!(times.windows(2).all(|w| w[0].time >= w[1].time) && times.iter().all(|op| op.count > 0));
}

#[test]
fn spans_lie_within_each_other_and_every_layer_and_step_is_there() {
    let dir = TempDir::new("api-trace");
    for device in present() {
        for t in tiny::all() {
            let (name, path) = (format!("{} on {}", t.name, device.name), dir.file("t.json"));
            traced(&t, device.name, &path);
            let events = events(&path);
            let of = |category| events.iter().filter(move |e: &&Event| e.category == category);
            let within = |inner: &Event, outer: &Event| outer.start <= inner.start && inner.end <= outer.end;
            let load: Vec<_> = of("load").map(|e| e.name.as_str()).collect();
            assert_eq!(load, LOAD, "{name}");
            let rows: Vec<_> =
                of("step").map(|e| (&e.args["prefill_rows"], &e.args["decode_rows"])).collect();
            let rows: Vec<_> = rows.iter().map(|(p, d)| (p.as_u64().unwrap(), d.as_u64().unwrap())).collect();
            assert_eq!(rows[0], (16, 0), "{name}: {rows:?}");
            assert_eq!(rows.iter().map(|r| r.0).sum::<u64>(), 20, "{name}: {rows:?}");
            assert_eq!(rows.iter().map(|r| r.1).sum::<u64>(), 3, "{name}: {rows:?}");
            for step in of("step") {
                let sum = |category| -> u64 {
                    of(category).filter(|e| within(e, step)).map(|e| e.end - e.start).sum()
                };
                let (ops, parts) = (sum("op"), sum("part"));
                assert!(0 < ops && ops <= parts && parts <= step.end - step.start, "{name}: {ops} {parts}");
            }
            for (inner, outer) in [("part", "step"), ("op", "part"), ("share", "op")] {
                for e in of(inner) {
                    assert!(of(outer).any(|o| within(e, o)), "{name}: {e:?} is in no {outer}");
                    assert_eq!(inner == "share", e.thread > 0, "{name}: {e:?}");
                }
            }
            let layers: BTreeSet<_> = of("op").filter_map(|e| e.args["layer"].as_u64()).collect();
            let expected: BTreeSet<_> = (0..layers.len() as u64).collect();
            assert!(layers.len() >= 2 && layers == expected, "{name}: {layers:?}");
            assert_eq!(of("part").filter(|e| e.name == "sample").count(), 4, "{name}");
        }
    }
}

#[test]
fn the_file_is_json_from_the_start_and_after_every_write() {
    let dir = TempDir::new("api-trace-file");
    let path = dir.file("t.json");
    let letter = "a letter that somebody wants to keep";
    fs::write(&path, letter).unwrap();
    assert!(Trace::create(&path).unwrap_err().to_string().contains("found another file"));
    assert_eq!(fs::read_to_string(&path).unwrap(), letter, "what is no trace is not replaced");
    fs::remove_file(&path).unwrap();
    drop(Trace::create(&path).unwrap());
    let older = fs::read_to_string(&path).unwrap() + &" ".repeat(4096);
    fs::write(&path, older).unwrap();
    let trace = Trace::create(&path).unwrap();
    assert!(events(&path).is_empty());
    for n in 1..4 {
        nibble_api::timed(Some(&*trace), "with \"quotes\" and \\", || ());
        trace.flush().unwrap();
        assert_eq!(events(&path).len(), n);
    }
    nibble_api::timed(Some(&*trace), "last", || ());
    drop(trace);
    assert_eq!(events(&path)[3].name, "last", "what is held is written in the end");
    let refused = Trace::create(&dir.file("no/such/folder.json")).unwrap_err();
    assert!(refused.to_string().contains("folder.json: the trace cannot be written"), "{refused}");
}
