//! The loop: admit requests, build a step, run it, choose tokens.

use crate::{
    Error, Event, FinishReason, Request, RequestId, Usage,
    pages::{Key, PageBank, child, root},
    states::StateBank,
    text::StopMatcher,
    trace::{Part, Trace, traced},
};
use nibble_backend::{Limits, PAGE_LEN, Plan, Step, Tracer};
use nibble_graph::Graph;
use nibble_sampler::Sampler;
use nibble_tokenizer::{StreamDecoder, Tokenizer};
use std::{collections::VecDeque, sync::Arc};

/// Recurrent state is kept every so many tokens of a prompt, and before its last one.
const CHECKPOINT_EVERY: usize = 8 * PAGE_LEN;

/// Steps that a device does alone before their tokens are handed out: enough to hide its start, too few to be noticed.
const STEPS_AHEAD: usize = 16;

/// A sequence: a request on its way.
struct Running {
    id: RequestId,
    request: Request,
    /// Prompt and answer.
    tokens: Vec<u32>,
    /// How many of them have run.
    done: usize,
    /// How many of those were there already.
    cached: usize,
    /// Pages it may need in all; promised when it was admitted.
    promised: usize,
    pages: Vec<u32>,
    /// Names of the prefixes of 0, 1, .. whole pages.
    keys: Vec<Key>,
    state: Option<u32>,
    sampler: Sampler,
    text: Option<(StreamDecoder, StopMatcher)>,
    /// Whether a stop token or a stop string has come.
    stopped: bool,
    /// Why no token could be chosen.
    failed: Option<nibble_sampler::Error>,
}

impl Running {
    fn prompt_len(&self) -> usize {
        self.request.prompt.len()
    }

    fn usage(&self) -> Usage {
        let prompt = self.prompt_len();
        Usage { prompt, cached: self.cached, generated: self.tokens.len() - prompt }
    }

    /// The name of the prefix of `n` tokens, all of whose whole pages are named.
    fn key(&self, n: usize) -> Key {
        let (pages, rest) = (n / PAGE_LEN, n % PAGE_LEN);
        let key = self.keys[pages];
        if rest == 0 { key } else { child(&key, &self.tokens[n - rest..n]) }
    }

    /// The most rows it can run next without passing a position where its state is to be kept.
    fn rows_left(&self) -> usize {
        let left = self.tokens.len() - self.done;
        if self.state.is_none() || self.done + 1 >= self.prompt_len() {
            return left;
        }
        let every = CHECKPOINT_EVERY - self.done % CHECKPOINT_EVERY;
        left.min(every).min(self.prompt_len() - 1 - self.done)
    }
}

/// Rows of the step being built that belong to one sequence.
struct Share {
    /// Its place in `running`.
    index: usize,
    rows: usize,
}

/// Runs requests on a plan.
pub struct Engine {
    pub(crate) plan: Box<dyn Plan>,
    pub(crate) limits: Limits,
    tokenizer: Option<Arc<Tokenizer>>,
    vocab: usize,
    pub(crate) recurrent: bool,
    salt_by_prompt_len: bool,
    pub(crate) chunk: usize,
    pub(crate) pages: PageBank,
    pub(crate) states: StateBank,
    waiting: VecDeque<(RequestId, Request, Sampler)>,
    running: Vec<Running>,
    next: u64,
    logits: Vec<f32>,
    /// Numbers in a row of each output.
    pub(crate) widths: Vec<usize>,
    rows: Rows,
    trace: Option<Trace>,
}

/// The arrays of a step, kept to be filled again.
#[derive(Default)]
struct Rows {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequence: Vec<u32>,
    wanted: Vec<u32>,
    /// Of the tokens, those of prompts.
    prefill: usize,
}

impl Rows {
    fn clear(&mut self) {
        let Self { tokens, positions, sequence, wanted, prefill } = self;
        [tokens, positions, sequence, wanted].into_iter().for_each(Vec::clear);
        *prefill = 0;
    }

    /// What a trace says of the step.
    fn counts(&self) -> [(&'static str, u64); 3] {
        let (prefill, rows) = (self.prefill as u64, self.tokens.len() as u64);
        let sequences = self.sequence.last().map_or(0, |&last| u64::from(last) + 1);
        [("prefill_rows", prefill), ("decode_rows", rows - prefill), ("sequences", sequences)]
    }
}

impl Engine {
    /// An engine over a compiled plan of `graph`. `prefill_chunk` bounds the prompt tokens in a step.
    pub fn new(
        plan: Box<dyn Plan>,
        graph: &Graph,
        tokenizer: Option<Arc<Tokenizer>>,
        prefill_chunk: Option<usize>,
    ) -> Self {
        let limits = plan.limits().clone();
        let vocab = graph.outputs.first().map_or(0, |&v| graph.shape(v).1);
        Self {
            chunk: prefill_chunk.unwrap_or(limits.rows).clamp(1, limits.rows),
            pages: PageBank::new(limits.pages),
            states: StateBank::new(limits.state_slots),
            recurrent: graph.is_recurrent(),
            salt_by_prompt_len: graph.depends_on_prompt_len(),
            logits: vec![0.0; vocab],
            widths: graph.outputs.iter().map(|&v| graph.shape(v).1).collect(),
            waiting: VecDeque::new(),
            running: Vec::with_capacity(limits.sequences),
            next: 0,
            rows: Rows::default(),
            trace: None,
            plan,
            limits,
            tokenizer,
            vocab,
        }
    }

    /// Tells `tracer` of the parts of each step from now on, and of the plan's tasks in them.
    pub fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        self.plan.trace(Arc::clone(&tracer));
        self.trace = Some(Trace::new(tracer));
    }

    /// What the plan was compiled for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the plan has reserved.
    pub fn memory(&self) -> nibble_backend::Memory {
        self.plan.memory()
    }

    /// Whether nothing is waiting or running.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Takes a request in. It runs as soon as there is room for all of it.
    ///
    /// # Errors
    /// If it can never run: a prompt that is empty, longer than the context or holds unknown tokens, more pages than
    /// the bank has, sampling parameters out of range.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Error> {
        self.check_prompt(&request.prompt)?;
        let (needed, available) = (self.pages_needed(&request), self.pages.len());
        if needed > available {
            return Err(Error::Pages { needed, available });
        }
        let sampler = Sampler::new(request.sampling.clone(), self.vocab)?;
        let id = RequestId(self.next);
        self.next += 1;
        self.waiting.push_back((id, request, sampler));
        Ok(id)
    }

    /// What every prompt must be.
    pub(crate) fn check_prompt(&self, prompt: &[u32]) -> Result<(), Error> {
        let (needed, available) = (prompt.len(), self.limits.context);
        if needed == 0 {
            return Err(Error::EmptyPrompt);
        }
        if needed > available {
            return Err(Error::Context { needed, available });
        }
        match prompt.iter().find(|&&t| t as usize >= self.vocab) {
            Some(&token) => Err(Error::Token { token, vocab: self.vocab }),
            None => Ok(()),
        }
    }

    /// Pages that prompt and answer take at most. The last token of an answer is never run.
    fn pages_needed(&self, request: &Request) -> usize {
        let room = self.limits.context - request.prompt.len();
        let answer = request.max_tokens.map_or(room, |n| n.saturating_sub(1).min(room));
        (request.prompt.len() + answer).div_ceil(PAGE_LEN)
    }

    /// Ends a request early; what it has run stays to be found. Unknown requests are ignored.
    pub fn cancel(&mut self, id: RequestId) -> Option<Event> {
        if let Some(at) = self.waiting.iter().position(|(waiting, ..)| *waiting == id) {
            let (id, request, _) = self.waiting.remove(at)?;
            let usage = Usage { prompt: request.prompt.len(), ..Usage::default() };
            return Some(Event::Finished {
                request: id,
                text: String::new(),
                reason: FinishReason::Cancelled,
                usage,
            });
        }
        let at = self.running.iter().position(|s| s.id == id)?;
        Some(self.finish(at, FinishReason::Cancelled))
    }

    /// Runs one step and appends what it brought to `events`. Logits that no token can be chosen from end their own
    /// sequence alone, by an event.
    ///
    /// # Errors
    /// If the device fails; all running requests are then gone, and waiting ones are kept.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let start = self.trace.as_ref().map(Trace::now);
        let result = self.try_step(events);
        if let (Some(trace), Some(start)) = (&self.trace, start) {
            trace.done(Part::Step, start, self.rows.counts());
        }
        if result.is_err() {
            self.abort();
        }
        result
    }

    fn try_step(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        self.rows.clear();
        self.admit(events)?;
        let shares = self.share_rows();
        if shares.is_empty() {
            return Ok(());
        }
        let ahead = self.steps_ahead(&shares);
        if ahead > 1 && self.run_ahead(&shares, ahead, events)? {
            return Ok(());
        }
        self.run(&shares)?;
        let mut wanted = 0;
        for share in &shares {
            self.advance(share, events)?;
            let sequence = &self.running[share.index];
            if sequence.done == sequence.tokens.len() {
                wanted += 1;
                if sequence.request.max_tokens == Some(0) {
                    continue;
                }
                self.plan.read(0, wanted - 1, &mut self.logits)?;
                let sequence = &mut self.running[share.index];
                let (count, sampler) = (("request", sequence.id.0), &mut sequence.sampler);
                let logits = &mut self.logits;
                match traced(self.trace.as_ref(), Part::Sample, count, || sampler.sample(logits)) {
                    Ok(token) => self.take_token(share.index, token, events),
                    Err(error) => sequence.failed = Some(error),
                }
            }
        }
        self.finish_ended(events);
        Ok(())
    }

    /// Removes all sequences that have failed or ended.
    fn finish_ended(&mut self, events: &mut Vec<Event>) {
        // From the back, so that the places of the others stay.
        for index in (0..self.running.len()).rev() {
            if let Some(error) = self.running[index].failed.take() {
                events.push(self.fail(index, error));
            } else if let Some(reason) = self.ended(index) {
                events.push(self.finish(index, reason));
            }
        }
    }

    /// Steps that the device can do alone: if all sequences just go on, with tokens that need nothing but logits.
    fn steps_ahead(&self, shares: &[Share]) -> usize {
        if !self.plan.can_decode() || shares.len() != self.running.len() {
            return 1;
        }
        let left = |s: &Running| {
            let simple =
                s.done >= s.prompt_len() && s.tokens.len() == s.done + 1 && s.sampler.draw().is_some();
            let room = self.limits.context - s.done;
            let generated = s.tokens.len() - s.prompt_len();
            let wanted = s.request.max_tokens.map_or(room, |n| n.saturating_sub(generated));
            if simple { room.min(wanted) } else { 1 }
        };
        self.running.iter().map(left).min().unwrap_or(1).min(STEPS_AHEAD)
    }

    /// Runs up to `steps` steps on the device alone, then takes their tokens as if they had come one by one. Returns
    /// false if the very first step made logits that nothing can be chosen from: the host then finds out why.
    fn run_ahead(&mut self, shares: &[Share], steps: usize, events: &mut Vec<Event>) -> Result<bool, Error> {
        let mut tokens: Vec<Vec<u32>> = Vec::with_capacity(steps);
        let stops: Vec<_> = self.running.iter().map(|s| s.request.stop_tokens.clone()).collect();
        let draws: Vec<_> = self.running.iter().filter_map(|s| s.sampler.draw()).collect();
        let vocab = self.vocab;
        self.run_with(shares, steps, &mut |plan, step| {
            plan.decode(step, &draws, steps, &mut |chosen| {
                if chosen.iter().any(|&token| token as usize >= vocab) {
                    return false;
                }
                tokens.push(chosen.to_vec());
                !chosen.iter().zip(&stops).any(|(token, stops)| stops.contains(token))
            })
        })?;
        let any = !tokens.is_empty();
        for tokens in tokens {
            for (share, token) in shares.iter().zip(tokens) {
                // One whose stop string has come goes no further, whatever the device did.
                if self.ended(share.index).is_none() {
                    self.advance(share, events)?;
                    self.take_token(share.index, token, events);
                }
            }
        }
        self.finish_ended(events);
        self.rows.clear();
        Ok(any)
    }

    /// Moves waiting requests to the running ones while there is room for all that they may need.
    fn admit(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        while self.running.len() < self.most_running() {
            let Some((_, request, _)) = self.waiting.front() else { break };
            let promised = self.pages_needed(request);
            let others: usize = self.running.iter().map(|s| s.promised - s.pages.len()).sum();
            if promised > self.pages.available().saturating_sub(others) {
                break;
            }
            let Some((id, request, mut sampler)) = self.waiting.pop_front() else { break };
            for &token in &request.prompt {
                sampler.observe(token);
            }
            let salt = if self.salt_by_prompt_len { request.prompt.len() as u64 } else { 0 };
            let text =
                self.tokenizer.clone().map(|t| (t.stream_continuing(true), StopMatcher::new(&request.stop)));
            self.running.push(Running {
                id,
                tokens: request.prompt.clone(),
                done: 0,
                cached: 0,
                promised,
                pages: Vec::with_capacity(promised),
                keys: vec![root(salt)],
                state: self.recurrent.then(|| self.states.take().expect("each sequence has a slot")),
                sampler,
                text,
                stopped: false,
                failed: None,
                request,
            });
            let cached = self.reuse(self.running.len() - 1)?;
            if cached > 0 {
                let total = self.running[self.running.len() - 1].prompt_len();
                events.push(Event::Prefill { request: id, done: cached, total, cached });
            }
        }
        Ok(())
    }

    /// Gives a new sequence the pages and the state of the longest prefix of its prompt that can be found; returns
    /// its length. At least the last token is left to run, as its logits are needed.
    fn reuse(&mut self, index: usize) -> Result<usize, Error> {
        let (mut found, mut len) = (vec![], 0);
        let most = {
            let s = &self.running[index];
            let most = s.prompt_len() - 1;
            let mut key = s.keys[0];
            while len < most {
                let tokens = &s.tokens[len..most.min(len + PAGE_LEN)];
                let Some((page, common)) = self.pages.find(&key, tokens) else { break };
                found.push(page);
                len += common;
                if common < PAGE_LEN {
                    break;
                }
                key = child(&key, tokens);
            }
            len
        };
        let len = match self.running[index].state {
            Some(slot) => self.reuse_state(index, slot, most)?,
            None => most,
        };
        for (i, &page) in found.iter().enumerate().take(len / PAGE_LEN) {
            self.pages.hold(page);
            let s = &mut self.running[index];
            s.pages.push(page);
            s.keys.push(child(&s.keys[i], &s.tokens[i * PAGE_LEN..(i + 1) * PAGE_LEN]));
        }
        if len % PAGE_LEN != 0 {
            let page = self.own(found[len / PAGE_LEN])?;
            self.running[index].pages.push(page);
        }
        self.running[index].done = len;
        self.running[index].cached = len;
        Ok(len)
    }

    /// A page with the contents of `page` that can be written: a copy, as others may find or hold the page itself;
    /// the page itself if nobody holds it and there is no room for a copy.
    fn own(&mut self, page: u32) -> Result<u32, Error> {
        self.pages.hold(page);
        match self.pages.take() {
            Some(copy) => {
                self.pages.release(page);
                self.plan.copy_page(page, copy)?;
                Ok(copy)
            }
            None => {
                self.pages.forget(page);
                Ok(page)
            }
        }
    }

    /// Fills `slot` from the longest checkpoint of at most `most` tokens; returns its length.
    fn reuse_state(&mut self, index: usize, slot: u32, most: usize) -> Result<usize, Error> {
        let s = &self.running[index];
        for len in self.states.lengths(most) {
            let mut key = s.keys[0];
            for tokens in s.tokens[..len].chunks(PAGE_LEN) {
                key = child(&key, tokens);
            }
            if let Some(from) = self.states.find(&key) {
                self.plan.copy_state(from, slot)?;
                return Ok(len);
            }
        }
        self.plan.clear_state(slot)?;
        Ok(0)
    }

    /// Sequences that can run at once: each may need a row and an output in the same step.
    fn most_running(&self) -> usize {
        self.limits.sequences.min(self.limits.rows).min(self.limits.wanted)
    }

    /// Divides the rows of a step: one for each decoding sequence, the rest to prompts in the order they came.
    fn share_rows(&self) -> Vec<Share> {
        let decoding = |s: &Running| s.done >= s.prompt_len();
        let spare = self.limits.rows - self.running.iter().filter(|s| decoding(s)).count();
        let mut left = spare.min(self.chunk);
        let mut shares = vec![];
        for (index, sequence) in self.running.iter().enumerate() {
            let mut rows = sequence.rows_left();
            if !decoding(sequence) {
                rows = rows.min(left);
                left -= rows;
            }
            if rows > 0 {
                shares.push(Share { index, rows });
            }
        }
        shares
    }

    /// Takes the pages that the step writes, and runs it.
    fn run(&mut self, shares: &[Share]) -> Result<(), Error> {
        self.run_with(shares, 1, &mut |plan, step| plan.run(step))
    }

    /// Takes the pages that `steps` steps write, and hands the first of them to `work`.
    fn run_with(
        &mut self,
        shares: &[Share],
        steps: usize,
        work: &mut dyn FnMut(&mut dyn Plan, &Step<'_>) -> Result<(), nibble_backend::Error>,
    ) -> Result<(), Error> {
        let Rows { tokens, positions, sequence, wanted, prefill } = &mut self.rows;
        for (i, share) in shares.iter().enumerate() {
            let s = &mut self.running[share.index];
            let end = s.done + share.rows;
            if s.done < s.prompt_len() {
                *prefill += share.rows;
            }
            while s.pages.len() * PAGE_LEN < end + steps - 1 {
                s.pages.push(self.pages.take().expect("pages were promised on admission"));
            }
            tokens.extend_from_slice(&s.tokens[s.done..end]);
            positions.extend(s.done as u32..end as u32);
            sequence.extend(std::iter::repeat_n(i as u32, share.rows));
            if end == s.tokens.len() {
                wanted.push(tokens.len() as u32 - 1);
            }
        }
        let sequences: Vec<_> = shares
            .iter()
            .map(|share| {
                let s = &self.running[share.index];
                nibble_backend::Sequence {
                    pages: &s.pages,
                    state: s.state.unwrap_or(0),
                    prompt_len: s.request.prompt.len() as u32,
                }
            })
            .collect();
        let step = Step { tokens, positions, sequence, sequences: &sequences, wanted };
        let rows = ("rows", step.tokens.len() as u64);
        Ok(traced(self.trace.as_ref(), Part::Run, rows, || work(&mut *self.plan, &step))?)
    }

    /// Counts a sequence's rows as done; lets its full pages be found and keeps its state where it is wanted.
    fn advance(&mut self, share: &Share, events: &mut Vec<Event>) -> Result<(), Error> {
        let s = &mut self.running[share.index];
        s.done += share.rows;
        while s.keys.len() <= s.done / PAGE_LEN {
            let page = s.keys.len() - 1;
            let (parent, tokens) = (s.keys[page], &s.tokens[page * PAGE_LEN..(page + 1) * PAGE_LEN]);
            self.pages.publish(s.pages[page], parent, tokens);
            s.keys.push(child(&parent, tokens));
        }
        let (done, total) = (s.done, s.prompt_len());
        if done <= total && share.rows > 0 && done > s.cached {
            events.push(Event::Prefill { request: s.id, done, total, cached: s.cached });
        }
        let keep = done + 1 == total || (done < total && done % CHECKPOINT_EVERY == 0);
        if let (Some(slot), true) = (s.state, keep) {
            let key = s.key(done);
            self.keep_state(slot, key, done)?;
        }
        Ok(())
    }

    /// Keeps a copy of a state, unless the slots are needed by sequences yet to come or it is there already.
    fn keep_state(&mut self, slot: u32, key: Key, len: usize) -> Result<(), Error> {
        let needed = self.limits.sequences - self.running.len();
        if self.states.contains(&key) || self.states.available() <= needed {
            return Ok(());
        }
        if let Some(copy) = self.states.take() {
            self.plan.copy_state(slot, copy)?;
            self.states.keep(copy, key, len);
        }
        Ok(())
    }

    fn take_token(&mut self, index: usize, token: u32, events: &mut Vec<Event>) {
        let s = &mut self.running[index];
        s.sampler.accept(token);
        s.tokens.push(token);
        s.stopped = s.request.stop_tokens.contains(&token);
        let mut text = String::new();
        if let (Some((decoder, stops)), false) = (&mut s.text, s.stopped) {
            let more = || stops.push(&decoder.push(token));
            (text, s.stopped) = traced(self.trace.as_ref(), Part::Text, ("request", s.id.0), more);
            if s.stopped {
                s.text = None;
            }
        }
        events.push(Event::Token { request: s.id, token, text });
    }

    /// Whether a sequence has ended, and why.
    fn ended(&self, index: usize) -> Option<FinishReason> {
        let s = &self.running[index];
        let generated = s.tokens.len() - s.prompt_len();
        let length =
            s.request.max_tokens.is_some_and(|n| generated >= n) || s.tokens.len() > self.limits.context;
        if s.stopped {
            Some(FinishReason::Stop)
        } else if s.done >= s.prompt_len() && length {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    /// Removes a sequence; what it has run stays to be found.
    fn finish(&mut self, index: usize, mut reason: FinishReason) -> Event {
        let mut s = self.running.remove(index);
        let whole = s.keys.len() - 1;
        if let Some(&page) = s.pages.get(whole) {
            self.pages.publish(page, s.keys[whole], &s.tokens[whole * PAGE_LEN..s.done]);
        }
        let key = s.key(s.done);
        if let Some(slot) = s.state.take_if(|_| s.done > 0 && !self.states.contains(&key)) {
            self.states.keep(slot, key, s.done);
        }
        self.release(&s);
        let text = s.text.as_mut().map_or(String::new(), |(decoder, stops)| {
            // Half a character at the end may be what completes a stop string.
            let (mut text, stopped) = stops.push(&decoder.finish());
            if !stopped {
                text.push_str(&stops.finish());
            } else if reason == FinishReason::Length {
                reason = FinishReason::Stop;
            }
            text
        });
        Event::Finished { request: s.id, text, reason, usage: s.usage() }
    }

    /// Removes a sequence; as its keys and values may be as damaged as its logits, nobody is to find them.
    fn fail(&mut self, index: usize, error: nibble_sampler::Error) -> Event {
        let s = self.running.remove(index);
        s.pages.iter().for_each(|&page| self.pages.forget(page));
        self.release(&s);
        let error = Error::Logits { position: s.tokens.len() - 1, error };
        Event::Failed { request: s.id, error, usage: s.usage() }
    }

    /// Gives the pages and the state of a removed sequence back.
    fn release(&mut self, s: &Running) {
        // From the back, so that the start of a conversation outlives its end.
        s.pages.iter().rev().for_each(|&page| self.pages.release(page));
        s.state.into_iter().for_each(|slot| self.states.release(slot));
    }

    /// Drops all running sequences and whatever the failed step left behind.
    fn abort(&mut self) {
        for s in std::mem::take(&mut self.running) {
            self.release(&s);
        }
    }
}
