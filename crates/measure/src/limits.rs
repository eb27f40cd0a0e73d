//! The limits of a device, measured beside the figures that they bound.
//!
//! On shared machines bandwidth changes from one second to the next, so it is read again around every row of figures.

use crate::stats::Summary;
use nibble_api::{Backend, Error, Numbers};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How long each limit is measured when a report starts, and at least how often.
const WHOLE: (Duration, usize) = (Duration::from_millis(400), 8);

/// How long bandwidth is measured around a row, and at least how often.
const AROUND: (Duration, usize) = (Duration::from_millis(30), 4);

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// Bytes that all threads together read in a second, from memory larger than the caches.
    pub read_bytes_per_s: Summary,
    /// Products of 8-bit integers in a second; `None` where no loop for them is written.
    pub int8_products_per_s: Option<Summary>,
    /// Products of 32-bit floats in a second.
    pub f32_products_per_s: Option<Summary>,
}

impl DeviceLimits {
    /// Measures them all, in about a second; `None` for a device without such loops.
    ///
    /// # Errors
    /// If the memory to read is not there.
    pub fn measure(backend: &dyn Backend) -> Result<Option<Self>, Error> {
        let Some(mut ceiling) = backend.ceiling()? else { return Ok(None) };
        let Some(read_bytes_per_s) = rate(WHOLE, || Some(ceiling.read())) else { return Ok(None) };
        Ok(Some(Self {
            read_bytes_per_s,
            int8_products_per_s: rate(WHOLE, || ceiling.multiply(Numbers::Int8)),
            f32_products_per_s: rate(WHOLE, || ceiling.multiply(Numbers::F32)),
        }))
    }
}

/// Bytes that the device reads in a second just now; `None` for a device without such a loop. As it reads more than the
/// caches hold, they hold nothing else afterwards.
///
/// # Errors
/// If the memory to read is not there.
pub fn bandwidth_now(backend: &dyn Backend) -> Result<Option<f64>, Error> {
    let Some(mut ceiling) = backend.ceiling()? else { return Ok(None) };
    Ok(rate(AROUND, || Some(ceiling.read())).map(|summary| summary.median))
}

/// Work per second, from as many rounds as fit; the first, which wakes the threads up, does not count.
fn rate((least, rounds): (Duration, usize), mut work: impl FnMut() -> Option<u64>) -> Option<Summary> {
    work()?;
    let (start, mut rates) = (Instant::now(), vec![]);
    while rates.len() < rounds || start.elapsed() < least {
        let begin = Instant::now();
        let done = work()? as f64;
        rates.push(done / begin.elapsed().as_secs_f64().max(1e-9));
    }
    Summary::of(&rates)
}

/// The share of a limit that work took: `work / seconds / limit`. `None` without a limit.
pub fn share(work: f64, seconds: f64, limit: Option<f64>) -> Option<f64> {
    let share = work / seconds / limit?;
    share.is_finite().then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_api::{Model, Options};

    #[test]
    fn a_share_is_work_over_time_over_limit() {
        // 800 MB in 20 ms are 40 GB/s, of 50 GB/s.
        assert_eq!(share(8e8, 0.02, Some(5e10)), Some(0.8));
        assert_eq!(share(8e8, 0.02, None), None);
        assert_eq!(share(8e8, 0.0, Some(5e10)), None);
    }

    #[test]
    fn the_processor_has_limits_and_the_reference_none() {
        let model = Model::builtin().unwrap();
        let backend = |device: &str| {
            model.backend(&Options { device: device.into(), threads: Some(2), ..Options::default() }).unwrap()
        };
        let cpu = backend("cpu");
        let limits = DeviceLimits::measure(cpu.as_ref()).unwrap().expect("loops are written");
        assert!(limits.read_bytes_per_s.median > 1e7);
        assert!(limits.int8_products_per_s.is_some() && limits.f32_products_per_s.is_some());
        assert!(bandwidth_now(cpu.as_ref()).unwrap().is_some_and(|rate| rate > 1e7));
        assert_eq!(DeviceLimits::measure(backend("reference").as_ref()).unwrap(), None);
    }
}
