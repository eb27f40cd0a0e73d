//! What a tracer is told of a step: its rows, the plan's run, the choice of tokens, the making of text.

use nibble_backend::{Category, Span, Tracer};
use nibble_graph::Label;
use std::sync::Arc;

/// A part of a step.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Step,
    Run,
    Sample,
    Text,
}

/// A tracer with the labels of the parts.
pub(crate) struct Trace {
    tracer: Arc<dyn Tracer>,
    labels: [Arc<Label>; 4],
}

impl Trace {
    pub(crate) fn new(tracer: Arc<dyn Tracer>) -> Self {
        let labels = ["step", "run the plan", "sample", "detokenize"];
        Self { tracer, labels: labels.map(|what| Arc::new(Label { layer: None, what: what.into() })) }
    }

    pub(crate) fn now(&self) -> u64 {
        self.tracer.now()
    }

    /// Tells of a part that began at `start` and ends now.
    pub(crate) fn done(&self, part: Part, start: u64, counts: [(&'static str, u64); 3]) {
        let category = if matches!(part, Part::Step) { Category::Step } else { Category::Part };
        let (label, end) = (&self.labels[part as usize], self.tracer.now());
        self.tracer.span(Span { label, category, thread: 0, start, end, counts });
    }
}

/// Does `work`, and tells of it if anybody wants to know. `trace` is a place apart from what `work` changes.
pub(crate) fn traced<T>(
    trace: Option<&Trace>,
    part: Part,
    count: (&'static str, u64),
    work: impl FnOnce() -> T,
) -> T {
    let Some(trace) = trace else { return work() };
    let start = trace.now();
    let result = work();
    trace.done(part, start, [count, ("", 0), ("", 0)]);
    result
}
