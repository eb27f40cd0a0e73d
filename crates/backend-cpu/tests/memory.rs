//! What is reserved is what was said, and running reserves nothing.

mod common;

use common::{golden_model, open};
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_cpu::kernels::Isa;
use nibble_backend_cpu::{Cpu, CpuOptions};
use nibble_model::Model;
use nibble_testkit::{
    TempDir,
    pack::{self, Plain, Written},
    shared_dir,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Counts allocations and bytes held.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MODELS: [&str; 5] = ["llama", "qwen3-moe", "gemma2", "qwen3.5", "llama-rope-dynamic"];

fn limits(kv: KvType) -> Limits {
    Limits {
        rows: 64,
        wanted: 4,
        sequences: 3,
        context: 1100,
        pages: 40,
        state_slots: 5,
        kv,
        activations: Activations::Auto,
        check_finite: false,
    }
}

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(2), ..CpuOptions::default() })
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_reserved_is_what_was_said() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for name in MODELS {
        let model = golden_model(name);
        for (_, kv) in KvType::ALL {
            let cpu = cpu();
            let said = cpu.memory(&model.graph, &limits(kv)).unwrap();
            let (heap, maps) = (HELD.load(Ordering::Relaxed), mapped());
            let plan = cpu.compile(&model.graph, &limits(kv)).unwrap();
            assert_eq!(plan.memory(), said, "{name} {kv}");
            let heap = HELD.load(Ordering::Relaxed) - heap;
            let reserved = heap + mapped() - maps;
            // What is not counted: the list of tasks, block buffers of threads, the ends of pages.
            let range = said.own()..said.own() + (256 << 10);
            assert!(range.contains(&reserved), "{name} {kv}: {reserved} of {said:?}");
        }
    }
}

/// tiny-llama in `tq1_0`, whose matrices some kernels read by strips.
fn in_trits(dir: &TempDir) -> Option<Model> {
    let plain = Plain::read(&shared_dir()?.join("tiny/tiny-llama"));
    let case = pack::cases().into_iter().find(|case| case.name == "gguf-tq1_0").expect("a case of that name");
    let Written::File(bytes) = (case.write)(&plain) else { panic!("a file") };
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Some(open(&path))
}

#[test]
fn matrices_written_anew_are_said_and_those_of_the_file_are_not_read() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = TempDir::new("memory-strips");
    let Some(model) = in_trits(&dir) else { return };
    let limits = limits(KvType::F16);
    let memory = |isa| {
        let cpu = Cpu::new(CpuOptions { threads: Some(2), isa, ..CpuOptions::default() });
        cpu.memory(&model.graph, &limits).unwrap()
    };
    let (twin, fastest) = (memory(Some(Isa::Scalar)), memory(None));
    if twin.mapped_weights == fastest.mapped_weights {
        assert_eq!(twin.weights, fastest.weights, "all is read in place");
        return eprintln!("skipped: this processor has no kernels that read strips");
    }
    let (added, gone) = (fastest.weights - twin.weights, twin.mapped_weights - fastest.mapped_weights);
    // 58 bytes for 54, and strips end at multiples of 64.
    assert!((1.07..1.12).contains(&(added as f64 / gone as f64)), "{added} bytes for {gone}");
    #[cfg(target_os = "linux")]
    {
        let maps = mapped();
        let plan = cpu().compile(&model.graph, &limits).unwrap();
        assert_eq!(plan.memory(), fastest);
        assert!(mapped() - maps >= added, "{} bytes for {added}", mapped() - maps);
    }
}

#[cfg(target_os = "linux")]
/// Bytes of maps that asked for huge pages, as the system counts them: in this program only plans do.
fn mapped() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut size, mut sum) = (0, 0);
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Size:") {
            size = kib.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024;
        } else if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|f| f == "hg")) {
            sum += size;
        }
    }
    sum
}

#[test]
fn running_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for name in MODELS {
        let model = golden_model(name);
        for (_, kv) in KvType::ALL {
            let mut plan = cpu().compile(&model.graph, &limits(kv)).unwrap();
            let mut logits = vec![0.0; model.config.vocab];
            let steps = if kv == KvType::F16 { 1000 } else { 50 };
            // The test harness may allocate beside us; what a plan allocates, it allocates each time.
            let quiet = (0..3).any(|_| {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                soak(&mut *plan, &mut logits, steps);
                ALLOCATIONS.load(Ordering::Relaxed) == before
            });
            assert!(quiet, "{name} {kv}");
        }
    }
}

/// A prompt of two sequences, then many steps of one row each, without a heap.
fn soak(plan: &mut dyn Plan, logits: &mut [f32], steps: u32) {
    let mut pages = [0; 18];
    pages.iter_mut().enumerate().for_each(|(i, p)| *p = i as u32);
    let mut other = pages;
    other.iter_mut().for_each(|p| *p += 18);
    let sequences = [
        Sequence { pages: &pages, state: 3, prompt_len: 20 },
        Sequence { pages: &other, state: 1, prompt_len: 20 },
    ];
    plan.clear_state(3).unwrap();
    plan.clear_state(1).unwrap();
    let mut tokens = [0; 40];
    tokens.iter_mut().enumerate().for_each(|(i, t)| *t = (i * 7 % 280) as u32);
    let (mut positions, mut sequence) = ([0; 40], [0; 40]);
    for i in 0..40 {
        (positions[i], sequence[i]) = (i as u32 % 20, i as u32 / 20);
    }
    let step = Step {
        tokens: &tokens,
        positions: &positions,
        sequence: &sequence,
        sequences: &sequences,
        wanted: &[19, 39],
    };
    plan.run(&step).unwrap();
    plan.copy_state(3, 4).unwrap();
    plan.copy_page(0, 39).unwrap();
    for i in 0..steps.min(18 * PAGE_LEN as u32 - 60) {
        let step = Step {
            tokens: &[i % 280, (i + 5) % 280],
            positions: &[20 + i, 20 + i],
            sequence: &[0, 1],
            sequences: &sequences,
            wanted: &[1],
        };
        plan.run(&step).unwrap();
        plan.read(0, 0, logits).unwrap();
        assert!(logits.iter().all(|l| l.is_finite()));
    }
}
