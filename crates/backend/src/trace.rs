//! Telling somebody outside how long parts of the work take.

use nibble_graph::Label;
use std::{fmt, sync::Arc};

/// Who is told. It brings the clock, as nothing that runs steps has one.
pub trait Tracer: fmt::Debug + Send + Sync {
    /// Nanoseconds since some moment in the past.
    fn now(&self) -> u64;

    /// Takes note of a piece of work that is over. It is called within steps, so it must not allocate or wait.
    fn span(&self, span: Span<'_>);
}

/// What kind of work a span is. One of a later kind lies within one of an earlier kind, on the thread of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// A model is opened and compiled.
    Load,
    /// The engine makes a step.
    Step,
    /// A part of that: the plan runs, a token is chosen, text is made.
    Part,
    /// The plan runs the ops of one task.
    Op,
    /// A thread beside the caller's has its share of a task.
    Share,
}

impl Category {
    /// Its word in trace files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Step => "step",
            Self::Part => "part",
            Self::Op => "op",
            Self::Share => "share",
        }
    }
}

/// A piece of work, with its times by [`Tracer::now`].
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// What was done; shared, so that it can be kept without copying it.
    pub label: &'a Arc<Label>,
    /// What kind of work it is.
    pub category: Category,
    /// Who did it: 0 is the thread that runs the step, others are threads of the device.
    pub thread: usize,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Figures by name, such as rows; those without a name are not there.
    pub counts: [(&'static str, u64); 3],
}

/// Does `work` and tells the tracer, if there is one, under a new label: not for use within a step.
pub fn timed<T>(tracer: Option<&dyn Tracer>, what: &str, work: impl FnOnce() -> T) -> T {
    let Some(tracer) = tracer else { return work() };
    let start = tracer.now();
    let result = work();
    let label = Arc::new(Label { layer: None, what: what.into() });
    let end = tracer.now();
    tracer.span(Span {
        label: &label,
        category: Category::Load,
        thread: 0,
        start,
        end,
        counts: [("", 0); 3],
    });
    result
}
