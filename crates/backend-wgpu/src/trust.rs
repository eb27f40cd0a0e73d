//! Which kernels a device may be given: those that were tried and found right.

use crate::{
    build::{FEW, Plain},
    device::Device,
    selfcheck::{Cache, Store, try_out},
    shader::Shader,
    tape::Tape,
    tune::{Meter, Tunable, Tuning, Way},
};
use nibble_backend::Error;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// What another way than the usual one may cost of what that costs.
const CLEAR: f64 = 0.9;

/// What is known of a device's kernels, and what is done about it.
pub struct Trust {
    store: Store,
    /// What is left out because no kernel for it is right.
    plain: Plain,
    /// Kernels that were run on a case since the device was opened.
    tried: usize,
    tuning: Tuning,
    meter: Box<dyn Meter>,
    warnings: Vec<String>,
}

impl Trust {
    /// What earlier starts found out.
    pub fn new(cache: Option<&Cache>, device: &Device, tuning: Tuning, meter: Box<dyn Meter>) -> Self {
        let mut store = Store::open(cache, &device.name, &device.driver);
        if tuning == Tuning::Again {
            store.forget_ways();
        }
        let tuning = if tuning == Tuning::Auto && device.caps.software { Tuning::Off } else { tuning };
        Self { store, tuning, meter, plain: Plain::default(), tried: 0, warnings: vec![] }
    }

    /// Keys of kernels that are wrong.
    pub fn wrong(&self) -> &BTreeSet<String> {
        self.store.wrong()
    }

    /// The fastest ways of kernels, and whether others are to be found.
    pub fn tuned(&self) -> (&BTreeMap<String, Way>, bool) {
        static USUAL: BTreeMap<String, Way> = BTreeMap::new();
        match self.tuning {
            Tuning::Off => (&USUAL, false),
            _ => (self.store.tuned(), true),
        }
    }

    /// Measures the kernels of `tape` whose fastest way is not known, as long as there is time. Returns whether one of them is
    /// to run in another way than in this tape.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails.
    pub fn tune(&mut self, device: &Device, tape: &Tape) -> Result<bool, Error> {
        let mut another = false;
        // Kernels for few rows are short: what one gains alone, behind others like it, it need not gain between the calls of
        // a token. They are left as they are unless somebody asks.
        let measured = |tunable: &&Tunable| self.tuning == Tuning::Again || tunable.rows > FEW;
        let mut order: Vec<&Tunable> = tape.tunables.iter().filter(measured).collect();
        // What every token needs first, then what prompts need, the largest of it before all.
        order.sort_by_key(|tunable| {
            let turn = if tunable.rows > FEW { 2 } else { tunable.rows };
            (turn, Reverse(tunable.bytes))
        });
        for tunable in order {
            if !self.meter.has_time() {
                break;
            }
            let shaders: Vec<&Shader> = tunable.ways.iter().map(|(_, call)| &call.shader).collect();
            self.try_new(device, &shaders)?;
            let right = |&way: &usize| self.store.verdict(&shaders[way].key()) == Some(true);
            let ways: Vec<usize> = (0..shaders.len()).filter(right).collect();
            if ways.is_empty() {
                continue;
            }
            let Some(costs) = self.meter.costs(device, tape, tunable, &ways)? else { continue };
            let best = ways.iter().zip(&costs).min_by(|a, b| a.1.total_cmp(b.1));
            let (&best, cost) = best.expect("there are ways");
            // The usual way, the first one, is left for a clear gain only.
            let clear = ways[0] != 0 || *cost < CLEAR * costs[0];
            let best = if clear { best } else { 0 };
            self.store.note_way(&tunable.key, tunable.ways[best].0);
            another |= best != 0;
        }
        if !tape.tunables.is_empty() {
            self.store.keep();
        }
        Ok(another)
    }

    /// How far products and their inputs are simplified.
    pub fn plain(&self) -> Plain {
        self.plain
    }

    /// Kernels that were run on a case since the device was opened.
    pub fn tried(&self) -> usize {
        self.tried
    }

    /// Sentences for the user that nobody has taken yet.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Takes [`Self::warnings`].
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Tries kernels of `tape` that were never tried. Returns whether all of them are right; if not, another tape is to be
    /// made by what is known now.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails, or computes wrongly by the plainest kernels too.
    pub fn settle(&mut self, device: &Device, tape: &Tape) -> Result<bool, Error> {
        let all: BTreeMap<String, &Shader> = tape
            .entries
            .iter()
            .flat_map(|entry| entry.variants.iter().flat_map(|v| &v.calls))
            .filter(|call| call.shader.twin.is_some())
            .map(|call| (call.shader.key(), &call.shader))
            .collect();
        let known_wrong = |key: &String| self.store.verdict(key) == Some(false);
        let (given_up, others): (Vec<_>, Vec<_>) = all.iter().partition(|(key, _)| known_wrong(key));
        let new: Vec<_> = others.into_iter().filter(|(key, _)| self.store.verdict(key).is_none()).collect();
        // A kernel that is known to be wrong is only there if nothing takes its place.
        if let Some((_, shader)) = given_up.first() {
            let Some(next) = self.plain.next() else {
                let what =
                    format!("its driver makes wrong code of the plainest kernel `{}` too", shader.label);
                return Err(device.error(format!("{what}: another driver may do, and --device cpu does")));
            };
            self.plain = next;
            return Ok(false);
        }
        if new.is_empty() {
            return Ok(true);
        }
        let shaders: Vec<&Shader> = new.iter().map(|(_, shader)| **shader).collect();
        let wrong = self.try_new(device, &shaders)?;
        self.store.keep();
        let Some((_, reason)) = wrong.first() else { return Ok(true) };
        let labels: BTreeSet<_> = wrong.iter().map(|(label, _)| format!("`{label}`")).collect();
        let (labels, s) =
            (labels.into_iter().collect::<Vec<_>>().join(", "), if wrong.len() > 1 { "s" } else { "" });
        self.warnings.push(format!(
            "{} ({}) makes wrong code of kernel{s} {labels} ({reason}), so plainer ones are used",
            device.name, device.driver
        ));
        Ok(false)
    }

    /// Runs the cases of kernels that were never tried; returns labels of those that are wrong, and why.
    fn try_new(&mut self, device: &Device, shaders: &[&Shader]) -> Result<Vec<(String, String)>, Error> {
        let new: Vec<&Shader> =
            shaders.iter().copied().filter(|s| self.store.verdict(&s.key()).is_none()).collect();
        let found = try_out(device, &new)?;
        self.tried += new.len();
        let mut wrong = vec![];
        for (shader, reason) in new.into_iter().zip(found) {
            self.store.note(shader.key(), reason.is_none());
            wrong.extend(reason.map(|reason| (shader.label.clone(), reason)));
        }
        Ok(wrong)
    }
}
