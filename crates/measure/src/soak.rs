//! Whether memory grows: many steps on one plan, then many times opened and closed again.

use crate::{
    footprint,
    text::{size, table},
};
use nibble_api::{Draw, Error, Kind, Model, Options, PAGE_LEN, Plan, Sequence, Step};
use serde::{Deserialize, Serialize};

/// Times after which everything that comes once has come, at the least.
const WARM_UP: usize = 4;

/// Growth of this process's own memory that may come from elsewhere: allocators keep some.
pub const HOST_BOUND: u64 = 8 << 20;

/// A part of a soak. Memory is compared from a tenth of it on, when everything that comes once has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    /// What was done.
    pub what: String,
    /// How often.
    pub count: usize,
    /// This process's own memory after a tenth and at the end; `None` where the system does not say.
    pub host: Option<[u64; 2]>,
    /// Memory of the device likewise; `None` where it does not say, or has none of its own.
    pub device: Option<[u64; 2]>,
}

impl Soak {
    /// Whether memory grew by more than its noise on the host, or at all on the device.
    pub fn grew(&self) -> bool {
        let by = |pair: Option<[u64; 2]>| pair.map_or(0, |[from, to]| to.saturating_sub(from));
        by(self.host) > HOST_BOUND || by(self.device) > 0
    }
}

/// Memory after a tenth of the way and at its end.
struct Watch {
    tenth: usize,
    begun: bool,
    host: [Option<u64>; 2],
    device: [Option<u64>; 2],
}

impl Watch {
    fn new(count: usize) -> Self {
        Self { tenth: (count / 10).max(WARM_UP.min(count)), begun: false, host: [None; 2], device: [None; 2] }
    }

    /// After so many.
    fn note(&mut self, done: usize, device: Option<u64>) {
        if done >= self.tenth {
            let at = usize::from(std::mem::replace(&mut self.begun, true));
            (self.host[at], self.device[at]) = (footprint().map(|f| f.own), device);
        }
    }

    fn end(self, what: &str, count: usize) -> Soak {
        let pair = |[from, to]: [Option<u64>; 2]| Some([from?, to?]);
        Soak { what: what.into(), count, host: pair(self.host), device: pair(self.device) }
    }
}

/// Runs `steps` steps on one plan, half of them with the host choosing each token, then opens the model, compiles it, runs
/// a step and closes all of it `cycles` times.
///
/// # Errors
/// As opening and running fail.
pub fn soak(
    open: &dyn Fn() -> Result<Model, Error>,
    options: &Options,
    [steps, cycles]: [usize; 2],
) -> Result<[Soak; 2], Error> {
    let model = open()?;
    let mut plan = model.plan(&model.graph, options)?;
    let mut watch = Watch::new(steps);
    let mut logits = vec![0.0; model.config.vocab];
    let context = plan.limits().context;
    let mut done = 0;
    while done < steps {
        let count = context.min(steps - done).min((steps / 20).max(1));
        // In turns, if the device can go on alone.
        let alone = plan.can_decode() && (done / count) % 2 == 1;
        run(&mut *plan, count, alone, &mut logits)?;
        done += count;
        watch.note(done, plan.device_memory());
    }
    let of_steps = watch.end("steps", steps);
    drop(plan);
    drop(model);
    let mut watch = Watch::new(cycles);
    for cycle in 1..=cycles {
        let model = open()?;
        let mut plan = model.plan(&model.graph, options)?;
        run(&mut *plan, 1, false, &mut logits)?;
        watch.note(cycle, plan.device_memory());
    }
    Ok([of_steps, watch.end("opened and closed", cycles)])
}

/// So many steps from an empty context.
fn run(plan: &mut dyn Plan, count: usize, alone: bool, logits: &mut [f32]) -> Result<(), Error> {
    let pages: Vec<u32> = (0..count.div_ceil(PAGE_LEN) as u32).collect();
    let recurrent = plan.limits().state_slots > 0;
    if recurrent {
        plan.clear_state(0)?;
    }
    let with = |position: usize, work: &mut dyn FnMut(&Step<'_>) -> Result<(), Error>| {
        work(&Step {
            tokens: &[1],
            positions: &[position as u32],
            sequence: &[0],
            sequences: &[Sequence { pages: &pages, state: 0, prompt_len: 1 }],
            wanted: &[0],
        })
    };
    if alone {
        return with(0, &mut |step| Ok(plan.decode(step, &[Draw::LARGEST], count, &mut |_| true)?));
    }
    for position in 0..count {
        with(position, &mut |step| Ok(plan.run(step)?))?;
        plan.read(0, 0, logits)?;
    }
    Ok(())
}

/// The parts as a table.
pub fn soak_table(parts: &[Soak]) -> String {
    let header = ["", "times", "host before", "after", "device before", "after", ""];
    let pair = |pair: Option<[u64; 2]>| match pair {
        Some(pair) => pair.map(size),
        None => ["-".into(), "-".into()],
    };
    let cells = |part: &Soak| {
        let mut cells = vec![part.what.clone(), part.count.to_string()];
        cells.extend(pair(part.host));
        cells.extend(pair(part.device));
        cells.push(if part.grew() { "GREW" } else { "no growth" }.into());
        cells
    };
    table(&header, &parts.iter().map(cells).collect::<Vec<_>>())
}

/// An error if any part grew.
///
/// # Errors
/// [`Kind::Run`] naming it.
pub fn soak_verdict(parts: &[Soak]) -> Result<(), Error> {
    match parts.iter().find(|part| part.grew()) {
        Some(part) => {
            let bound = size(HOST_BOUND);
            let what = format!(
                "memory grew with {}: expected less than {bound} on the host and none on the device",
                part.what
            );
            Err(Error::new(Kind::Run, what))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_soak_grows_nothing() {
        let options = Options { device: "cpu".into(), threads: Some(1), ..Options::default() };
        let parts = soak(&Model::builtin, &options, [200, 5]).unwrap();
        let counts: Vec<_> = parts.iter().map(|p| (p.what.as_str(), p.count, p.device)).collect();
        assert_eq!(counts, [("steps", 200, None), ("opened and closed", 5, None)]);
        assert!(parts.iter().all(|p| !cfg!(target_os = "linux") || p.host.is_some()), "{parts:?}");
        soak_verdict(&parts[..1]).unwrap();
    }

    #[test]
    fn growth_is_a_failure() {
        let part = |host, device| Soak { what: "steps".into(), count: 9, host, device };
        let fine = part(Some([1 << 20, 2 << 20]), Some([5, 5]));
        assert!(soak_verdict(std::slice::from_ref(&fine)).is_ok());
        let host = part(Some([0, HOST_BOUND + 1]), None);
        let device = part(None, Some([5, 6]));
        for grown in [host, device] {
            assert!(soak_table(std::slice::from_ref(&grown)).contains("GREW"));
            assert!(soak_verdict(&[fine.clone(), grown]).is_err());
        }
    }
}
