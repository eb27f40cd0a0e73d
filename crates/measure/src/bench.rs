//! The benchmark: every row warm or cold, repeated, beside its limit, in turns with others.

use crate::{
    Identity,
    bounds::Bounds,
    case::{Case, Lists, Task},
    cold::drop_page_cache,
    footprint::{footprint, reset_peak},
    hash::Hashing,
    limits::{DeviceLimits, bandwidth_now, share},
    peers::{Peer, Setup},
    report::{Against, PeerReport, Report, Row},
    stats::{Summary, median, ratios},
    take::{Prompts, Take, roomy, take, tokens_until_steady},
    work::Work,
};
use nibble_api::{Activations, Backend, Engine, Error, Kind, Model, Options};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What to measure and how.
pub struct Bench<'a> {
    /// Opens the model. Called once, or before every take if `cold`.
    pub open: &'a dyn Fn() -> Result<Model, Error>,
    /// How it runs; context and sequences are set from the rows.
    pub options: Options,
    /// Which rows.
    pub lists: Lists,
    /// Takes of each row.
    pub repeats: usize,
    /// Takes before them that do not count.
    pub warmup: usize,
    /// Whether caches are emptied before each take.
    pub cold: bool,
    /// Others to measure in turns.
    pub against: Vec<Contender>,
    /// The longest that one of their takes may last, its load included.
    pub against_limit: Duration,
    /// The command that asked, for the report.
    pub command: String,
    /// Where hashes of files are remembered.
    pub cache: Option<PathBuf>,
}

/// Another program to measure.
pub struct Contender {
    /// Which.
    pub peer: &'static dyn Peer,
    /// Its program or folder, if the user gave one.
    pub given: Option<PathBuf>,
    /// Further arguments for it.
    pub flags: Vec<String>,
}

/// How far a benchmark is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Takes that are done, others' included.
    pub done: usize,
    /// Takes in all.
    pub total: usize,
    /// What is at work.
    pub what: String,
}

/// A contender that was found.
struct Present {
    peer: &'static dyn Peer,
    program: PathBuf,
    setup: Setup,
    report: PeerReport,
}

impl Bench<'_> {
    /// Runs all of it. `progress` is told before each take.
    ///
    /// # Errors
    /// If the model cannot be opened, started or run; [`Kind::Usage`] if there is no row, or none of the contenders is
    /// there or runs this model.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
        let model = (self.open)()?;
        let cases = self.lists.cases(model.config.context);
        if cases.is_empty() || self.repeats == 0 {
            return Err(Error::new(Kind::Usage, "bench: expected rows and repeats, found none to measure"));
        }
        let backend = model.backend(&self.options)?;
        let identity = self.identity(&model, backend.as_ref(), progress)?;
        let mut notes = self.notes(&model, &cases);
        let mut present = self.contenders(&model, &identity, &mut notes)?;
        let limits = DeviceLimits::measure(backend.as_ref())?;
        if limits.is_none() {
            notes.push(format!("limits not verified: none are measured on {}", identity.device));
        }
        let total = cases.len() * (self.warmup + self.repeats * (1 + present.len()));
        let mut run = Run {
            bench: self,
            backend,
            limits,
            work: Work::of(&model.graph, self.options.kv),
            started: None,
            loads: vec![],
            progress,
            done: 0,
            total,
            cold: None,
            notes: vec![],
        };
        drop(model);
        let rows = cases.iter().map(|case| run.row(case, &mut present)).collect::<Result<Vec<_>, _>>()?;
        run.started = None;
        let (load_s, cold) = (Summary::of(&run.loads), run.cold.take());
        notes.append(&mut run.notes);
        self.check_files(&identity, &mut notes)?;
        Ok(Report {
            command: self.command.clone(),
            identity,
            limits,
            repeats: self.repeats,
            warmup: self.warmup_words(),
            cold,
            load_s: load_s.ok_or_else(|| Error::new(Kind::Run, "bench: the model was never started"))?,
            peers: present.into_iter().map(|p| p.report).collect(),
            rows,
            notes,
        })
    }

    fn identity(
        &self,
        model: &Model,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Identity, Error> {
        let mib = |bytes: u64| (bytes >> 20) as usize;
        let mut tell = |done, total| {
            let what = "MiB hashed".into();
            progress(Progress { done: mib(done), total: mib(total), what });
        };
        let mut hashing = Hashing { cache: self.cache.clone(), progress: Some(&mut tell) };
        Identity::new(model, &self.options, backend, &mut hashing)
    }

    fn notes(&self, model: &Model, cases: &[Case]) -> Vec<String> {
        let own = model.config.context;
        let longest = cases.iter().map(Case::context).max().unwrap_or(0);
        let mut notes = vec![];
        if longest > own {
            notes.push(format!("a context of {longest} is longer than the model's own {own}"));
        }
        if crate::Build::this().profile != "release" {
            notes.push("this is no release build: its figures say nothing of nibble's speed".into());
        }
        notes
    }

    /// Those that are there; a note for each that is not.
    fn contenders(
        &self,
        model: &Model,
        identity: &Identity,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Present>, Error> {
        let mut present = vec![];
        for contender in &self.against {
            let setup = Setup {
                model: model.checkpoint.path.clone(),
                threads: identity.threads,
                kv: self.options.kv,
                chunk: self.options.prefill_chunk.unwrap_or(512),
                warmup: self.warmup > 0,
                flags: contender.flags.clone(),
                limit: self.against_limit,
            };
            let name = contender.peer.name();
            let located = match model.checkpoint.files.is_empty() {
                true => Err("the built-in model is no file that others could open".to_owned()),
                false => contender.peer.locate(contender.given.as_deref(), &setup),
            };
            match located {
                Ok(program) => present.push(Present {
                    peer: contender.peer,
                    report: PeerReport {
                        name: name.into(),
                        version: contender.peer.version(&program),
                        program: program.display().to_string(),
                        flags: contender.flags.clone(),
                    },
                    program,
                    setup,
                }),
                Err(why) => notes.push(format!("{name} not measured: {why}")),
            }
        }
        if present.is_empty() && !self.against.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                format!("bench: nobody to compare with: {}", notes.join("; ")),
            ));
        }
        Ok(present)
    }

    fn warmup_words(&self) -> String {
        match (self.cold, self.warmup) {
            (true, _) => "none: every take starts cold".into(),
            (false, 0) => "none".into(),
            (false, 1) => "one whole take of each row".into(),
            (false, n) => format!("{n} whole takes of each row"),
        }
    }

    /// Both sides ran files of one path; they must still be the files that were hashed.
    fn check_files(&self, identity: &Identity, notes: &mut Vec<String>) -> Result<(), Error> {
        if self.against.is_empty() {
            return Ok(());
        }
        let model = (self.open)()?;
        let files = model.checkpoint.files.iter().map(|(path, _)| path.as_path());
        let now = crate::hash_files(files, &mut Hashing { cache: self.cache.clone(), progress: None })?;
        if now != identity.files {
            let what = "the model's files changed while they were measured; no ratio from different files";
            return Err(Error::new(Kind::Run, format!("{}: {what}", identity.model)));
        }
        notes.push("the files were the same ones after the last take as before the first".into());
        Ok(())
    }
}

/// A benchmark on its way.
struct Run<'a> {
    bench: &'a Bench<'a>,
    backend: Box<dyn Backend>,
    limits: Option<DeviceLimits>,
    work: Work,
    started: Option<Started>,
    /// Seconds that opening and starting took, each time.
    loads: Vec<f64>,
    progress: &'a mut dyn FnMut(Progress),
    done: usize,
    total: usize,
    /// What was done to make takes cold.
    cold: Option<String>,
    notes: Vec<String>,
}

/// An engine and what it was started for.
struct Started {
    engine: Engine,
    vocab: usize,
    context: usize,
    batch: usize,
}

impl Run<'_> {
    fn row(&mut self, case: &Case, present: &mut [Present]) -> Result<Row, Error> {
        let mut prompts = None;
        let warmup = if self.bench.cold { 0 } else { self.bench.warmup };
        let before = bandwidth_now(self.backend.as_ref())?;
        for _ in 0..warmup {
            self.tell(format!("{case}, warm-up"));
            self.take(case, &mut prompts)?;
        }
        // Cold takes need no warm-up, so the bar is ahead of them.
        self.done += self.bench.warmup - warmup;
        reset_peak();
        let mut takes = vec![];
        let mut theirs: Vec<Result<Vec<f64>, String>> = present.iter().map(|_| Ok(vec![])).collect();
        for turn in 1..=self.bench.repeats {
            self.tell(format!("{case}, {turn} of {}", self.bench.repeats));
            takes.push(self.take(case, &mut prompts)?);
            for (present, theirs) in present.iter_mut().zip(&mut theirs) {
                self.tell(format!("{case}, {turn} of {}, {}", self.bench.repeats, present.report.name));
                if let Ok(rates) = theirs {
                    match present.peer.take(&present.program, case, &present.setup) {
                        Ok(taken) => {
                            rates.push(taken.tokens_per_s);
                            if present.report.version.is_none() {
                                present.report.version = taken.version;
                            }
                        }
                        Err(why) => *theirs = Err(why),
                    }
                }
            }
        }
        let footprint = footprint();
        let after = bandwidth_now(self.backend.as_ref())?;
        let around = before.zip(after).map(|(before, after)| [before, after]);
        let mut row = self.summary(case, &takes, around)?;
        row.footprint = footprint;
        for (present, theirs) in present.iter().zip(theirs) {
            let name = &present.report.name;
            match theirs.map(|rates| against(name, &row.takes, rates)) {
                Ok(against) => row.against.extend(against),
                Err(why) => self.notes.push(format!("{case}: {name} not measured: {why}")),
            }
        }
        Ok(row)
    }

    fn tell(&mut self, what: String) {
        (self.progress)(Progress { done: self.done, total: self.total, what });
        self.done += 1;
    }

    /// One take, on an engine that is there or started for it.
    fn take(&mut self, case: &Case, prompts: &mut Option<Prompts>) -> Result<Take, Error> {
        if self.bench.cold {
            self.started = None;
            self.make_cold()?;
        }
        let fits = |s: &Started| s.batch == case.batch && s.context >= case.context();
        let mut started = match self.started.take().filter(fits) {
            Some(started) => started,
            None => self.start(case)?,
        };
        let prompts = prompts.get_or_insert_with(|| Prompts::new(case, started.vocab));
        let result = take(&mut started.engine, case, prompts);
        self.started = Some(started);
        result
    }

    /// Opens the model and reserves memory for rows of such a batch.
    fn start(&mut self, case: &Case) -> Result<Started, Error> {
        let begin = Instant::now();
        let model = (self.bench.open)()?;
        let alike =
            self.bench.lists.cases(model.config.context).into_iter().filter(|c| c.batch == case.batch);
        let context = alike.map(|c| c.context()).max().unwrap_or(case.context());
        let context = context.max(self.bench.options.context.unwrap_or(0));
        let options =
            Options { context: Some(roomy(context)), sequences: case.batch, ..self.bench.options.clone() };
        let engine = model.start(&options)?;
        self.loads.push(begin.elapsed().as_secs_f64());
        Ok(Started { engine, vocab: model.config.vocab, context, batch: case.batch })
    }

    /// Nothing has the files mapped now.
    fn make_cold(&mut self) -> Result<(), Error> {
        let files: Vec<PathBuf> = {
            let model = (self.bench.open)()?;
            model.checkpoint.files.iter().map(|(path, _)| path.clone()).collect()
        };
        let dropped = match files.is_empty() {
            true => "no file whose pages could be dropped".into(),
            false => drop_page_cache(files.iter().map(|path: &PathBuf| -> &Path { path })),
        };
        let swept = match self.backend.ceiling()? {
            Some(mut ceiling) => {
                let bytes = ceiling.read();
                format!("caches swept with {}", crate::text::size(bytes))
            }
            None => "caches not swept".into(),
        };
        self.cold = Some(format!("{swept}; {dropped}; the model opened again"));
        Ok(())
    }

    fn summary(&self, case: &Case, takes: &[Take], around: Option<[f64; 2]>) -> Result<Row, Error> {
        let summary = |of: &dyn Fn(&Take) -> f64| {
            let values: Vec<_> = takes.iter().map(of).collect();
            let none = || Error::new(Kind::Run, format!("bench: {case}: no finite figure"));
            Ok::<_, Error>((Summary::of(&values).ok_or_else(none)?, values))
        };
        let (tokens_per_s, rates) = summary(&|take| take.rate(case))?;
        let decode = case.task == Task::Decode;
        let token_s = match decode {
            true => Some(summary(&|take| take.steady_s().unwrap_or(take.seconds))?.0),
            false => None,
        };
        let bounds = self.bounds(case, tokens_per_s.median, around);
        let cached = takes.iter().map(|take| take.cached).max().unwrap_or(0);
        Ok(Row {
            name: case.to_string(),
            case: *case,
            tokens_per_s,
            takes: rates,
            first_token_s: summary(&|take| take.first_s)?.0,
            token_s,
            tokens_until_steady: if decode { tokens_until_steady(&typical(takes)) } else { None },
            work: bounds.work,
            bound: bounds.bound,
            limit: bounds.limit,
            bandwidth_around: around,
            share_of_limit: share(bounds.work * bounds.steps_per_s, 1.0, bounds.limit),
            products_per_byte: bounds.products / bounds.bytes,
            products_per_s: bounds.products * bounds.steps_per_s,
            footprint: None,
            cached_tokens: cached,
            drafted_tokens: 0,
            accepted_tokens: 0,
            against: vec![],
        })
    }

    fn bounds(&self, case: &Case, tokens_per_s: f64, around: Option<[f64; 2]>) -> Bounds {
        let steps_per_s = match case.task {
            Task::Prefill => tokens_per_s / case.tokens as f64,
            Task::Decode => tokens_per_s / case.batch as f64,
        };
        let exact = self.bench.options.activations == Activations::F32;
        let chunk = self.bench.options.prefill_chunk.unwrap_or(512);
        let limits = |limit: Option<Summary>| limit.map(|summary| summary.median);
        Bounds::of(case, &self.work, chunk).limited(
            steps_per_s,
            exact,
            around.map(|[before, after]| (before + after) / 2.0),
            self.limits.and_then(|l| match self.bench.options.activations {
                Activations::F32 => limits(l.f32_products_per_s),
                Activations::I16 => limits(l.int8_products_per_s).map(|limit| limit / 2.0),
                Activations::Auto => limits(l.int8_products_per_s),
            }),
        )
    }
}

/// The time of each step, as the median over takes.
fn typical(takes: &[Take]) -> Vec<f64> {
    let len = takes.iter().map(|take| take.steps_s.len()).min().unwrap_or(0);
    let at = |step: usize| median(&takes.iter().map(|take| take.steps_s[step]).collect::<Vec<_>>());
    (0..len).filter_map(at).collect()
}

fn against(peer: &str, ours: &[f64], theirs: Vec<f64>) -> Option<Against> {
    Some(Against {
        peer: peer.into(),
        tokens_per_s: Summary::of(&theirs)?,
        ratio: ratios(ours, &theirs)?,
        takes: theirs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typical_step_is_the_median_over_takes() {
        let take = |steps: &[f64]| Take { seconds: 1.0, first_s: 1.0, steps_s: steps.to_vec(), cached: 0 };
        let takes = [take(&[1.0, 5.0]), take(&[2.0, 6.0]), take(&[9.0, 4.0, 4.0])];
        assert_eq!(typical(&takes), [2.0, 5.0]);
    }
}
