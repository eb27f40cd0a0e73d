//! Stop strings, found across the borders of tokens.

/// Passes text on until a stop string appears in it. Text that may be the start of one is held back.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Stops at the first of these; empty strings are ignored.
    pub(crate) fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(), held: String::new() }
    }

    /// More text. Returns what can be passed on, and whether a stop string was found: it and what follows it is gone.
    pub(crate) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The end of the text: what was held back.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that begin `stop` without completing it.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    let starts = (1..=longest).rev().filter(|&n| stop.is_char_boundary(n));
    starts.into_iter().find(|&n| text.ends_with(&stop[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], parts: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<_> = stops.iter().map(|s| s.to_string()).collect();
        let mut matcher = StopMatcher::new(&stops);
        let mut out = vec![];
        for part in parts {
            let (text, stopped) = matcher.push(part);
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        out.push(matcher.finish());
        (out, false)
    }

    #[test]
    fn nothing_of_a_stop_string_is_ever_passed_on() {
        assert_eq!(
            run(&["END"], &["a", "E", "N", "D", "b"]),
            (vec!["a".into(), "".into(), "".into(), "".into()], true)
        );
        let (out, stopped) = run(&["END"], &["E", "N", "X"]);
        assert_eq!((out.concat(), stopped), ("ENX".into(), false));
    }

    #[test]
    fn the_first_stop_wins_and_a_false_start_may_hide_a_true_one() {
        let (out, stopped) = run(&["aab", "zz"], &["aa", "ab", "c"]);
        assert_eq!((out.concat(), stopped), ("a".into(), true));
        let (out, _) = run(&["later", "lat"], &["so la", "ter"]);
        assert_eq!(out.concat(), "so ");
        let (out, stopped) = run(&["é!"], &["caf", "é", "?"]);
        assert_eq!((out.concat(), stopped), ("café?".into(), false));
        assert_eq!(run(&[""], &["x"]).0.concat(), "x");
    }
}
