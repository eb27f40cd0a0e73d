//! What a tracer is told: when each task ran, and when each thread had its share of it.

use nibble_backend::{Category, Span, Tracer};
use nibble_graph::Label;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A tracer, and room for what threads note until their task is over.
pub struct Trace {
    tracer: Arc<dyn Tracer>,
    threads: Box<[Busy]>,
    /// The work before the first task.
    pub angles: Arc<Label>,
}

/// When a thread began with its first chunk of a task and ended its last one; on a cache line of its own.
#[repr(align(128))]
struct Busy {
    start: AtomicU64,
    end: AtomicU64,
}

/// [`Busy::start`] of a thread that has had no chunk.
const IDLE: u64 = u64::MAX;

impl Trace {
    /// Reserves room for so many threads.
    pub fn new(tracer: Arc<dyn Tracer>, threads: usize) -> Self {
        let busy = || Busy { start: AtomicU64::new(IDLE), end: AtomicU64::new(0) };
        let angles = Arc::new(Label { layer: None, what: "angles".into() });
        Self { tracer, threads: (0..threads).map(|_| busy()).collect(), angles }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.tracer.now()
    }

    /// Runs a chunk on a thread, which notes its times.
    pub fn chunk(&self, thread: usize, chunk: impl FnOnce()) {
        // Only this thread writes here, and the caller reads when the region is over.
        let busy = &self.threads[thread];
        busy.start.fetch_min(self.tracer.now(), Ordering::Relaxed);
        chunk();
        busy.end.store(self.tracer.now(), Ordering::Relaxed);
    }

    /// Tells of a task that began at `start` and is over, and of the threads that helped.
    pub fn done(&self, label: &Arc<Label>, start: u64) {
        let end = self.tracer.now();
        let tell = |category, thread, start, end| {
            self.tracer.span(Span { label, category, thread, start, end, counts: [("", 0); 3] });
        };
        tell(Category::Op, 0, start, end);
        for (thread, busy) in self.threads.iter().enumerate() {
            let began = busy.start.swap(IDLE, Ordering::Relaxed);
            if thread > 0 && began != IDLE {
                tell(Category::Share, thread, began, busy.end.load(Ordering::Relaxed));
            }
        }
    }
}
