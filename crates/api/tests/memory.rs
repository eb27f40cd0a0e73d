//! What is refused reserves nothing, and what is dropped is given back. A process of its own, as it looks at itself.

use nibble_api::{Engine, Event, Kind, KvType, Model, Options, Registry, Request, SamplerParams, present};
use nibble_testkit::tiny;

/// Bytes that the system counts for this process under a name of `/proc/self/status`, if it has such a file.
fn counted(name: &str) -> Option<u64> {
    let found = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    if found.is_none() {
        eprintln!("SKIPPED: this system has no /proc/self/status with {name}");
    }
    found.map(|kib| kib << 10)
}

fn options() -> Options {
    Options { device: "cpu".into(), threads: Some(2), context: Some(256), ..Options::default() }
}

fn tokens(engine: &mut Engine, prompt: &[u32]) -> Vec<u32> {
    let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let request = Request { prompt: prompt.to_vec(), max_tokens: Some(8), sampling, ..Request::default() };
    engine.submit(request).unwrap();
    let mut events = vec![];
    while !engine.is_idle() {
        engine.step(&mut events).unwrap();
    }
    let token = |e: &Event| if let Event::Token { token, .. } = e { Some(*token) } else { None };
    events.iter().filter_map(token).collect()
}

// One test, so that nothing else moves the figures.
#[test]
fn what_does_not_fit_reserves_nothing_and_what_is_dropped_comes_back() {
    let path = std::env::temp_dir().join(format!("nibble-memory-{}.gguf", std::process::id()));
    for t in tiny::all() {
        std::fs::write(&path, t.gguf()).unwrap();
        refuse(&Model::open(&path, &Registry::default()).unwrap(), t.name);
        load_and_unload(&path, t.name);
    }
    std::fs::remove_file(&path).unwrap();
}

fn refuse(model: &Model, name: &str) {
    // Two layers, keys and values, 128 numbers of four bytes: 2 KiB a position, so 8 GiB.
    let huge = Options { context: Some(1 << 22), kv: KvType::F32, ..options() };
    let before = counted("VmPeak");
    for budget in [1 << 20, 1 << 30] {
        let refused = model.start(&Options { memory_budget: Some(budget), ..huge.clone() });
        let Err(refused) = refused else { panic!("{name}: 8 GiB in {budget} bytes") };
        assert_eq!(refused.kind, Kind::Fit, "{name}");
        let (words, available) = (refused.to_string(), format!("{} MiB are available", budget >> 20));
        assert!(words.contains("8192 for a context of 4194304") && words.contains(&available), "{words}");
    }
    // Nothing wraps on the way to a refusal.
    for device in present() {
        for context in [usize::MAX, usize::MAX / 2, 1 << 40] {
            for (sequences, prefill_chunk) in [(1, None), (64, Some(usize::MAX)), (usize::MAX, Some(1))] {
                let endless = Options {
                    device: device.name.into(),
                    context: Some(context),
                    sequences,
                    prefill_chunk,
                    memory_budget: Some(1 << 40),
                    ..huge.clone()
                };
                let Err(refused) = model.start(&endless) else { panic!("{name}: {endless:?}") };
                assert_eq!(refused.kind, Kind::Fit, "{name}: {refused}");
            }
        }
    }
    if let (Some(before), Some(after)) = (before, counted("VmPeak")) {
        // Stacks and arenas of threads count here too, though they are empty.
        assert!(after - before < 256 << 20, "{name}: {} MiB more", (after - before) >> 20);
    }
    let fits = model.backend(&options()).unwrap().memory(&model.graph, &model.limits(&options())).unwrap();
    let [exactly, less] = [0, 1].map(|less| Options { memory_budget: Some(fits.own() - less), ..options() });
    assert!(model.start(&exactly).is_ok() && model.start(&less).is_err(), "{name}");
}

fn load_and_unload(path: &std::path::Path, name: &str) {
    let mut expected = None;
    let mut warm = None;
    for round in 0..50 {
        let model = Model::open(path, &Registry::default()).unwrap();
        let found = tokens(&mut model.start(&options()).unwrap(), &tiny::prompt(1, 20));
        assert_eq!(expected.get_or_insert_with(|| found.clone()), &found, "{name}, round {round}");
        drop(model);
        if round == 9 {
            warm = counted("VmRSS");
        }
    }
    // The allocator may keep some pages; forty models (5 MiB mapped and 1 MiB of keys and values each) it may not.
    if let (Some(warm), Some(after)) = (warm, counted("VmRSS")) {
        assert!(after < warm + (16 << 20), "{name}: from {} to {} MiB", warm >> 20, after >> 20);
    }
}
