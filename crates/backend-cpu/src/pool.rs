//! Persistent threads that run the chunks of one region together with the caller.
//!
//! A region is a closure and a number of chunks. Every thread claims the next chunk, or a share of those that are left,
//! until none is left, so a core that is busy with something else delays what it has claimed and not the region. Claiming
//! goes through one word that holds the number of the region and the chunks left of it: a thread that wakes up late finds
//! another region or no chunks and touches nothing, so nobody ever waits for a thread that has claimed nothing.
//!
//! Waiting threads spin for some microseconds, then yield, then sleep: short regions cost no system call, and an idle
//! pool uses no processor.

use crate::trace::Trace;
use std::{
    any::Any,
    cell::UnsafeCell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::JoinHandle,
};

/// The most chunks in a region.
pub const MAX_CHUNKS: usize = (1 << LEFT_BITS) - 1;

const LEFT_BITS: u32 = 24;
const SPINS: u32 = 4_000;
const YIELDS: u32 = 200;

/// What the threads of a region run: chunk numbers, thread number.
type Body<'a> = dyn Fn(Range<usize>, usize) + Sync + 'a;

/// A pool of threads; the one that calls [`Team::run`] is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

/// The right to run regions: one holder at a time.
pub struct Team<'a> {
    pool: &'a Pool,
    trace: Option<&'a Trace>,
    _turn: MutexGuard<'a, ()>,
}

/// A region as its threads see it. The closure lives on the stack of the caller, which waits for all claimed chunks.
#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    chunks: usize,
}

struct Shared {
    /// Number of the region, shifted by [`LEFT_BITS`], and chunks not yet claimed.
    word: AtomicU64,
    /// Chunks claimed or not, that are not finished.
    unfinished: AtomicU32,
    /// A thread claims one of so many parts of the chunks that are left, but at least one chunk.
    part: AtomicUsize,
    job: UnsafeCell<Job>,
    sleepers: AtomicU32,
    stop: AtomicBool,
    bed: Mutex<()>,
    alarm: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written by the holder of the turn while no chunk is left to claim and none is unfinished, and read
// only after a chunk of the region was claimed, which happens after the write (release and acquire on `word`). The
// closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer to the closure is only followed while its region runs.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` threads in all, the caller included; at least one.
    pub fn new(threads: usize) -> Self {
        let idle: &Body<'static> = &|_: Range<usize>, _| {};
        let shared = Arc::new(Shared {
            word: AtomicU64::new(0),
            unfinished: AtomicU32::new(0),
            part: AtomicUsize::new(1),
            job: UnsafeCell::new(Job { body: idle, chunks: 0 }),
            sleepers: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
            panic: Mutex::new(None),
        });
        let spawn = |thread| {
            let shared = Arc::clone(&shared);
            let name = format!("nibble-{thread}");
            std::thread::Builder::new().name(name).spawn(move || shared.work(thread)).ok()
        };
        // Fewer threads than wished for are slower, not wrong.
        let threads = (1..threads.max(1)).map_while(spawn).collect();
        Self { shared, threads, turn: Mutex::new(()) }
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Waits for the turn to run regions; with a trace, threads note when they work on them.
    pub fn team<'a>(&'a self, trace: Option<&'a Trace>) -> Team<'a> {
        Team { pool: self, trace, _turn: self.turn.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.alarm.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<'a> Team<'a> {
    /// Where threads note their times.
    pub fn trace(&self) -> Option<&'a Trace> {
        self.trace
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs `body(chunk, thread)` once for each chunk in `0..chunks` and returns when all are done. Two chunks that
    /// run at the same time have different thread numbers, below [`Team::threads`]. A panic in a chunk goes on here,
    /// after the other chunks.
    pub fn run(&mut self, chunks: usize, body: impl Fn(usize, usize) + Sync) {
        self.run_claims(chunks, usize::MAX, |chunks, thread| chunks.for_each(|chunk| body(chunk, thread)));
    }

    /// The same for chunks that are better worked on in a row: threads claim long ranges of them first and shorter ones
    /// towards the end, so that all finish together.
    pub fn run_ranges(&mut self, chunks: usize, body: impl Fn(Range<usize>, usize) + Sync) {
        self.run_claims(chunks, 2 * self.threads(), body);
    }

    fn run_claims(&mut self, chunks: usize, part: usize, body: impl Fn(Range<usize>, usize) + Sync) {
        if self.pool.threads.is_empty() || chunks <= 1 {
            if chunks > 0 {
                body(0..chunks, 0);
            }
            return;
        }
        assert!(chunks <= MAX_CHUNKS, "a region of {chunks} chunks");
        match self.trace {
            None => self.region(chunks, part, &body),
            Some(trace) => {
                self.region(chunks, part, &|chunks, thread| trace.chunk(thread, || body(chunks, thread)));
            }
        }
    }

    fn region(&mut self, chunks: usize, part: usize, body: &Body<'_>) {
        self.pool.shared.start(chunks, part, body);
        self.pool.shared.help(0);
        self.pool.shared.finish();
    }
}

impl Shared {
    /// Publishes a region. [`Self::finish`] must be called before `body` ends.
    fn start(&self, chunks: usize, part: usize, body: &Body<'_>) {
        let body: *const Body<'_> = body;
        // SAFETY: only the lifetime changes. The pointer is followed between `start` and the end of `finish`, while
        // the caller's borrow of `body` lasts.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        // SAFETY: the caller holds the turn and the last region has no chunk left: nobody reads.
        unsafe { *self.job.get() = Job { body, chunks } };
        self.part.store(part, Ordering::Relaxed);
        self.unfinished.store(chunks as u32, Ordering::Relaxed);
        let region = (self.word.load(Ordering::Relaxed) >> LEFT_BITS) + 1;
        self.word.store(region << LEFT_BITS | chunks as u64, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
            self.alarm.notify_all();
        }
    }

    /// Claims and runs chunks until none is left; whether it ran any.
    fn help(&self, thread: usize) -> bool {
        let mut any = false;
        while let Some((left, taken)) = self.claim() {
            any = true;
            // SAFETY: a claimed chunk is unfinished, so the region runs: the job is not written, its closure lives.
            let (job, body) = unsafe {
                let job = *self.job.get();
                (job, &*job.body)
            };
            let first = job.chunks - left;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(first..first + taken, thread))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            self.unfinished.fetch_sub(taken as u32, Ordering::Release);
        }
        any
    }

    /// Chunks left before some were claimed, and how many were.
    fn claim(&self) -> Option<(usize, usize)> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let left = (word & MAX_CHUNKS as u64) as usize;
            if left == 0 {
                return None;
            }
            // Read after the word, which is written after it: if the word is still the same below, this was its part.
            let taken = (left / self.part.load(Ordering::Relaxed)).max(1);
            let new = word - taken as u64;
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((left, taken)),
                Err(now) => word = now,
            }
        }
    }

    /// Waits for the chunks that other threads claimed, and passes a panic on.
    fn finish(&self) {
        let mut waited = 0;
        while self.unfinished.load(Ordering::Acquire) != 0 {
            pause(waited);
            waited += 1;
        }
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// The life of a thread.
    fn work(&self, thread: usize) {
        let mut waited = 0;
        while !self.stop.load(Ordering::Acquire) {
            if self.help(thread) {
                waited = 0;
            } else if waited < SPINS + YIELDS {
                pause(waited);
                waited += 1;
            } else {
                self.sleep();
                waited = 0;
            }
        }
    }

    /// Sleeps until a region starts or the pool ends.
    fn sleep(&self) {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Whoever starts a region after this look sees the sleeper and takes the lock, that is, waits for `wait`.
        while self.word.load(Ordering::SeqCst) & MAX_CHUNKS as u64 == 0 && !self.stop.load(Ordering::SeqCst) {
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The `waited`-th wait in a row.
fn pause(waited: u32) {
    if waited < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_chunk_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 9] {
            let pool = Pool::new(threads);
            let mut team = pool.team(None);
            for chunks in [0, 1, 2, 7, 100] {
                let ran: Vec<_> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                team.run(chunks, |chunk, thread| {
                    assert!(thread < threads);
                    ran[chunk].fetch_add(1, Ordering::Relaxed);
                });
                assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn ranges_cover_every_chunk_once_and_get_shorter() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let mut team = pool.team(None);
            for chunks in [0, 1, 2, 7, 1000] {
                let ran: Vec<_> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                let ranges = Mutex::new(Vec::new());
                team.run_ranges(chunks, |range, thread| {
                    assert!(thread < threads);
                    range.clone().for_each(|chunk| _ = ran[chunk].fetch_add(1, Ordering::Relaxed));
                    ranges.lock().unwrap().push(range);
                });
                assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                let mut ranges = ranges.into_inner().unwrap();
                ranges.sort_by_key(|range| range.start);
                assert!(ranges.is_sorted_by(|a, b| a.len() >= b.len()), "{ranges:?}");
            }
        }
    }

    #[test]
    fn many_short_regions_do_not_mix() {
        let pool = Pool::new(4);
        let mut team = pool.team(None);
        let sum = AtomicUsize::new(0);
        for region in 0..20_000 {
            team.run(3, |_, _| {
                sum.fetch_add(region, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.load(Ordering::Relaxed), 3 * (0..20_000).sum::<usize>());
    }

    #[test]
    fn an_idle_pool_sleeps() {
        let pool = Pool::new(4);
        for _ in 0..3 {
            pool.team(None).run(4, |_, _| {});
            while pool.shared.sleepers.load(Ordering::SeqCst) < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_sleeping_pool_wakes_up() {
        let pool = Pool::new(3);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            let met = AtomicUsize::new(0);
            // Two chunks that wait for each other need two threads.
            pool.team(None).run(2, |_, _| {
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let failed =
            catch_unwind(AssertUnwindSafe(|| pool.team(None).run(8, |chunk, _| assert_ne!(chunk, 5))));
        assert!(failed.is_err());
        let count = AtomicUsize::new(0);
        pool.team(None).run(8, |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 8);
    }
}
