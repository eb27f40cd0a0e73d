//! The ways in which work can be handed to a device, beside each other: how much waiting and submitting cost.

use crate::{
    stats::{Summary, ratios},
    text::{digits, table, time},
};
use nibble_api::{Draw, Error, Kind, Limits, Model, Options, PAGE_LEN, Plan, Sequence, Step};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// One way of handing over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModeRow {
    /// Its name.
    pub mode: String,
    /// Whether it is used if nobody asks for another.
    pub standard: bool,
    /// Generated tokens a second.
    pub tokens_per_second: Summary,
    /// How many times as fast as the first one, take by take.
    pub ratio: Option<Summary>,
    /// Seconds that the thread that hands over works for a token; `None` where the system does not say.
    pub host: Option<Summary>,
    /// Calls of kernels for a token.
    pub calls: f64,
    /// Submissions for a token.
    pub submissions: f64,
}

/// What one take gave.
struct Take {
    seconds: f64,
    host: Option<f64>,
}

/// Generates `tokens` tokens from an empty context in each way, in turns, `repeats` times after one that does not count.
///
/// # Errors
/// [`Kind::Usage`] if the device has but one way, or cannot choose tokens of this model itself; or as running fails.
pub fn modes(model: &Model, options: &Options, tokens: usize, repeats: usize) -> Result<Vec<ModeRow>, Error> {
    let options = Options { context: Some(tokens), sequences: 1, ..options.clone() };
    let mut plan = model.plan(&model.graph, &options)?;
    let names = plan.modes();
    if names.is_empty() || !plan.can_decode() {
        let what = match names.is_empty() {
            true => "this device has one way of taking work, so there is nothing to compare",
            false => "this model's tokens are chosen by the host, so there is nothing to compare",
        };
        return Err(Error::new(Kind::Usage, what));
    }
    let standard = plan.mode();
    let mut takes: Vec<Vec<Take>> = names.iter().map(|_| vec![]).collect();
    let mut asked = vec![Default::default(); names.len()];
    for repeat in 0..=repeats {
        for (i, name) in names.iter().enumerate() {
            plan.set_mode(name)?;
            let before = plan.counts();
            let take = take(&mut *plan, tokens)?;
            asked[i] = plan.counts() - before;
            if repeat > 0 {
                takes[i].push(take);
            }
        }
    }
    let speeds: Vec<Vec<f64>> =
        takes.iter().map(|t| t.iter().map(|t| tokens as f64 / t.seconds).collect()).collect();
    let row = |i: usize| {
        let host: Option<Vec<f64>> = takes[i].iter().map(|t| t.host.map(|h| h / tokens as f64)).collect();
        Some(ModeRow {
            mode: names[i].into(),
            standard: names[i] == standard,
            tokens_per_second: Summary::of(&speeds[i])?,
            ratio: ratios(&speeds[i], &speeds[0]),
            host: host.and_then(|host| Summary::of(&host)),
            calls: asked[i].calls as f64 / tokens as f64,
            submissions: asked[i].submissions as f64 / tokens as f64,
        })
    };
    (0..names.len())
        .map(row)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::new(Kind::Run, "a take was no time"))
}

/// Generates tokens from an empty context.
fn take(plan: &mut dyn Plan, tokens: usize) -> Result<Take, Error> {
    let Limits { pages, .. } = *plan.limits();
    let pages: Vec<u32> = (0..pages.min(tokens.div_ceil(PAGE_LEN)) as u32).collect();
    let step = Step {
        tokens: &[1],
        positions: &[0],
        sequence: &[0],
        sequences: &[Sequence { pages: &pages, state: 0, prompt_len: 1 }],
        wanted: &[0],
    };
    let (start, busy) = (Instant::now(), thread_time());
    let mut made = 0;
    plan.decode(&step, &[Draw::LARGEST], tokens, &mut |_| {
        made += 1;
        true
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let host = thread_time().zip(busy).map(|(now, then)| now - then);
    if made != tokens {
        return Err(Error::new(Kind::Run, format!("expected {tokens} tokens, found {made}")));
    }
    Ok(Take { seconds, host })
}

/// Seconds that this thread has worked.
#[cfg(target_os = "linux")]
fn thread_time() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

#[cfg(not(target_os = "linux"))]
fn thread_time() -> Option<f64> {
    None
}

/// The rows as a table.
pub fn modes_table(rows: &[ModeRow]) -> String {
    let header = ["mode", "tokens/s", "least to most", "ratio", "host a token", "calls", "submissions"];
    let cells = |row: &ModeRow| {
        let speed = &row.tokens_per_second;
        vec![
            format!("{}{}", row.mode, if row.standard { " (used)" } else { "" }),
            digits(speed.median),
            format!("{} to {}", digits(speed.min), digits(speed.max)),
            row.ratio.as_ref().map_or("-".into(), |r| format!("{:.2}x", r.median)),
            row.host.as_ref().map_or("-".into(), |h| time(h.median)),
            digits(row.calls),
            digits(row.submissions),
        ]
    };
    table(&header, &rows.iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_way_in_use() {
        let row = |mode: &str, standard, speeds: &[f64]| ModeRow {
            mode: mode.into(),
            standard,
            tokens_per_second: Summary::of(speeds).unwrap(),
            ratio: ratios(speeds, &[10.0, 20.0]),
            host: Summary::of(&[2e-6, 4e-6]),
            calls: 43.0,
            submissions: 0.25,
        };
        let text = modes_table(&[row("slow", false, &[10.0, 20.0]), row("fast", true, &[15.0, 50.0])]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["slow", "15.0", "10.0", "to", "20.0", "1.00x", "3.0", "us", "43.0", "0.250"]);
        assert_eq!(words[2][..2], ["fast", "(used)"]);
        assert!(words[2].contains(&"2.00x"), "{text}");
    }
}
