//! Log-probabilities of a row of logits.

/// The logarithm of the sum of exponentials, in f64: what turns a logit into a log-probability when it is taken from
/// it. `-inf` if there is nothing but `-inf`, NaN if there is a NaN.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY && !logits.iter().any(|v| v.is_nan()) {
        return f64::NEG_INFINITY;
    }
    let max = f64::from(max);
    max + logits.iter().map(|&v| (f64::from(v) - max).exp()).sum::<f64>().ln()
}

/// The `n` likeliest tokens with their log-probabilities, likeliest first, and of equals the lowest id first.
pub fn top_logprobs(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let total = log_sum_exp(logits);
    let order = |&a: &u32, &b: &u32| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if n < ids.len() {
        ids.select_nth_unstable_by(n, order);
        ids.truncate(n);
    }
    ids.sort_unstable_by(order);
    ids.into_iter().map(|id| (id, (f64::from(logits[id as usize]) - total) as f32)).collect()
}
