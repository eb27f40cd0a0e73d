//! Repeats and medians.

use std::time::Instant;

/// Runs `work(thread)` on so many threads at once; returns seconds from the first start to the last end.
pub fn seconds(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let start = Instant::now();
    if threads == 1 {
        work(0);
    } else {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let work = &work;
                scope.spawn(move || work(thread));
            }
        });
    }
    start.elapsed().as_secs_f64()
}

/// The least.
pub fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
