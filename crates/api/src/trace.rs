//! A trace of where time goes, as a file that Perfetto and Chrome show: the trace event format, complete events.
//!
//! Source: "Trace Event Format", Google. `ts` and `dur` are microseconds, `args` figures.

use crate::{Error, error::Kind};
use nibble_backend::{Category, Span, Tracer};
use nibble_graph::Label;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Spans held between two writes to the file: more than the longest step has.
const HELD: usize = 1 << 16;

/// What begins the file, and tells an older trace from files that nobody wants to lose.
const BEGIN: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// What ends the file. It is there after each write, so that the file can be read whatever ends the program.
const END: &str = "\n]}\n";

/// Takes note of spans and writes them to a file.
///
/// Within a step, spans go to memory that was reserved beforehand; [`Trace::keep_up`] and [`Trace::flush`] write them
/// between steps. Spans beyond what it holds are counted and left out.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: Vec<Held>,
    lost: u64,
    out: BufWriter<File>,
    empty: bool,
    written: Instant,
    threads: BTreeSet<usize>,
    /// Nanoseconds and number of all tasks, by their ops.
    ops: BTreeMap<String, (u64, u64)>,
}

/// A [`Span`] that is kept.
#[derive(Debug)]
struct Held {
    label: Arc<Label>,
    category: Category,
    thread: usize,
    start: u64,
    end: u64,
    counts: [(&'static str, u64); 3],
}

/// The time that the tasks with the same ops took together, in all layers and steps.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTime {
    /// The ops: `matmul (ffn.gate, ffn.up) + gated`.
    pub what: String,
    /// How long they took.
    pub time: Duration,
    /// How often they ran.
    pub count: u64,
}

impl Trace {
    /// Starts the clock and the file; an older trace of that name is replaced.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the file cannot be written, or another one is there: it may be the model, which is in use.
    pub fn create(path: &Path) -> Result<Arc<Self>, Error> {
        if holds_something_else(path) {
            let path = path.display();
            let what =
                format!("{path}: expected a new file or an older trace to write to, found another file");
            return Err(Error::new(Kind::Usage, what + "; choose another name"));
        }
        let file = File::create(path).map_err(|e| unwritable(path, &e))?;
        let now = Instant::now();
        let state = State {
            held: Vec::with_capacity(HELD),
            lost: 0,
            out: BufWriter::new(file),
            empty: true,
            written: now,
            threads: BTreeSet::new(),
            ops: BTreeMap::new(),
        };
        let trace = Self { start: now, path: path.into(), state: Mutex::new(state) };
        trace.state().begin().map_err(|e| unwritable(path, &e))?;
        Ok(Arc::new(trace))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is held if it is much or a second old: to be called after each step.
    ///
    /// # Errors
    /// [`Kind::Run`] if the file cannot be written.
    pub fn keep_up(&self) -> Result<(), Error> {
        let state = self.state();
        let due = state.held.len() > HELD / 4 || state.written.elapsed() > Duration::from_secs(1);
        drop(state);
        if due { self.flush() } else { Ok(()) }
    }

    /// Writes all that is held.
    ///
    /// # Errors
    /// [`Kind::Run`] if the file cannot be written.
    pub fn flush(&self) -> Result<(), Error> {
        self.state().write().map_err(|e| Error::new(Kind::Run, unwritable(&self.path, &e).to_string()))
    }

    /// Spans that were left out, as more came between two writes than are held.
    pub fn lost(&self) -> u64 {
        self.state().lost
    }

    /// The times of all ops that were written, the longest first.
    pub fn op_times(&self) -> Vec<OpTime> {
        let state = self.state();
        let time = |(what, &(ns, count)): (&String, &(u64, u64))| OpTime {
            what: what.clone(),
            time: Duration::from_nanos(ns),
            count,
        };
        let mut times: Vec<_> = state.ops.iter().map(time).collect();
        times.sort_by_key(|op| std::cmp::Reverse(op.time));
        times
    }
}

impl Tracer for Trace {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn span(&self, span: Span<'_>) {
        let mut state = self.state();
        if state.held.len() == state.held.capacity() {
            state.lost += 1;
            return;
        }
        let Span { label, category, thread, start, end, counts } = span;
        state.held.push(Held { label: Arc::clone(label), category, thread, start, end, counts });
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Whoever wants to know of failures has flushed before.
        let _ = self.flush();
    }
}

impl State {
    fn begin(&mut self) -> io::Result<()> {
        write!(self.out, "{BEGIN}{END}")?;
        self.out.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        self.written = Instant::now();
        if self.held.is_empty() {
            return Ok(());
        }
        self.out.seek(SeekFrom::End(-(END.len() as i64)))?;
        // All of it leaves memory even if the file refuses it.
        let mut held = std::mem::take(&mut self.held);
        let result = held.iter().try_for_each(|span| self.event(span));
        held.clear();
        self.held = held;
        result?;
        self.out.write_all(END.as_bytes())?;
        self.out.flush()
    }

    fn event(&mut self, span: &Held) -> io::Result<()> {
        if self.threads.insert(span.thread) {
            let name = if span.thread == 0 { "steps".into() } else { format!("thread {}", span.thread) };
            self.separate()?;
            write!(
                self.out,
                "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":\"{name}\"}}}}",
                span.thread
            )?;
        }
        if span.category == Category::Op {
            match self.ops.get_mut(&span.label.what) {
                Some((time, count)) => (*time, *count) = (*time + span.end - span.start, *count + 1),
                None => {
                    self.ops.insert(span.label.what.clone(), (span.end - span.start, 1));
                }
            }
        }
        self.separate()?;
        let name = serde_json::Value::from(span.label.what.as_str());
        let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        write!(
            self.out,
            "{{\"name\":{name},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{",
            span.category.name(),
            span.thread,
            us(span.start),
            us(span.end - span.start),
        )?;
        let layer = span.label.layer.map(|layer| ("layer", layer as u64));
        let counts = layer.into_iter().chain(span.counts).filter(|(name, _)| !name.is_empty());
        for (i, (name, count)) in counts.enumerate() {
            write!(self.out, "{}\"{name}\":{count}", if i == 0 { "" } else { "," })?;
        }
        write!(self.out, "}}}}")
    }

    fn separate(&mut self) -> io::Result<()> {
        let first = std::mem::take(&mut self.empty);
        self.out.write_all(if first { b"\n" } else { b",\n" })
    }
}

/// Whether a file would be lost that is no trace.
fn holds_something_else(path: &Path) -> bool {
    let mut begin = vec![];
    path.is_file()
        && File::open(path).is_ok_and(|file| file.take(BEGIN.len() as u64).read_to_end(&mut begin).is_ok())
        && !begin.is_empty()
        && begin != BEGIN.as_bytes()
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::new(Kind::Usage, format!("{}: the trace cannot be written: {error}", path.display()))
}
