//! A report for a terminal, and for a spreadsheet.

use crate::{
    footprint::Footprint,
    limits::DeviceLimits,
    report::{Bound, Report, Row},
    stats::Summary,
    text::{digits, percent, scaled, size, table, time},
};
use std::fmt::Write;

/// The columns of the table.
pub const COLUMNS: &[&str] = &[
    "row",
    "tok/s",
    "95 %",
    "min",
    "max",
    "first",
    "token",
    "steady at",
    "work",
    "of limit",
    "limit",
    "peak",
    "cached",
];

/// The columns of the comma-separated form, one line for each row and each peer's row.
const CSV: &str = "row,side,tokens_per_s,low,high,min,max,repeats,first_token_s,token_s,tokens_until_steady,work,bound,\
                   limit,share_of_limit,footprint_bytes,own_bytes,peak_bytes,cached,drafted,accepted,ratio,ratio_low,\
                   ratio_high,sha256,device,build";

impl Report {
    /// Who, how, the rows, and what to know of them: lines of text.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n\n", self.identity);
        for (name, value) in self.circumstances() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<8} {value}");
        }
        out.push('\n');
        out.push_str(&table(COLUMNS, &self.rows.iter().map(cells).collect::<Vec<_>>()));
        if self.rows.iter().any(|row| !row.against.is_empty()) {
            out.push('\n');
            out.push_str(&table(AGAINST, &self.against_cells()));
        }
        for note in &self.notes {
            let _ = writeln!(out, "\nnote: {note}");
        }
        out
    }

    /// The circumstances that all rows share, by name.
    pub fn circumstances(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("command", self.command.clone())];
        all.extend(self.limits.map(|limits| ("limits", limits.to_text())));
        let cold = self.cold.as_ref().map_or("warm".to_owned(), |how| format!("cold: {how}"));
        all.push(("takes", format!("{} of each row, {cold}; warm-up: {}", self.repeats, self.warmup)));
        all.push(("load", format!("{} ({} times)", time(self.load_s.median), self.load_s.repeats)));
        all.push(("drafted", "0 tokens, 0 accepted: no speculation".into()));
        for peer in &self.peers {
            let version = peer.version.as_deref().unwrap_or("version unknown");
            let flags = peer.flags.join(" ");
            all.push(("against", format!("{} {version}, {} {flags}", peer.name, peer.program)));
        }
        all
    }

    /// The cells of the table of peers.
    pub fn against_cells(&self) -> Vec<Vec<String>> {
        let of = |row: &Row| {
            let line = |a: &crate::report::Against| {
                vec![
                    row.name.clone(),
                    a.peer.clone(),
                    digits(row.tokens_per_s.median),
                    digits(a.tokens_per_s.median),
                    range(&a.tokens_per_s),
                    digits(a.ratio.median),
                    range(&a.ratio),
                ]
            };
            row.against.iter().map(line).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of).collect()
    }

    /// Comma-separated values with a header.
    pub fn to_csv(&self) -> String {
        let mut out = format!("{CSV}\n");
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let build = &self.identity.build;
        let tail = [
            self.identity.sha256.clone(),
            quoted(&format!("{}, {}", self.identity.device, self.identity.instructions)),
            quoted(&format!("{} {} {}", build.version, build.commit, build.profile)),
        ];
        for row in &self.rows {
            let ours = csv_ours(row);
            let lines = [ours].into_iter().chain(row.against.iter().map(csv_theirs));
            for cells in lines {
                let all: Vec<_> = [quoted(&row.name)].into_iter().chain(cells).chain(tail.clone()).collect();
                let _ = writeln!(out, "{}", all.join(","));
            }
        }
        out
    }
}

/// The columns of the table of peers.
pub const AGAINST: &[&str] = &["row", "against", "tok/s", "theirs", "95 %", "ratio", "95 %"];

impl DeviceLimits {
    /// In a line.
    pub fn to_text(&self) -> String {
        let products = |name: &str, summary: Option<Summary>| match summary {
            Some(summary) => format!("{name} {}MAC/s", scaled(summary.median)),
            None => format!("{name} not measured"),
        };
        let read = self.read_bytes_per_s;
        format!(
            "reads {}B/s ({} to {}), {}, {}",
            scaled(read.median),
            digits(read.min / 1e9),
            digits(read.max / 1e9),
            products("int8", self.int8_products_per_s),
            products("f32", self.f32_products_per_s)
        )
    }
}

/// A row's cells, as in [`COLUMNS`].
pub fn cells(row: &Row) -> Vec<String> {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let unit = if row.bound == Bound::Memory { "B" } else { "MAC" };
    let limit = row.limit.map(|limit| format!("{}{unit}/s {}", scaled(limit), row.bound.name()));
    vec![
        row.name.clone(),
        digits(row.tokens_per_s.median),
        range(&row.tokens_per_s),
        digits(row.tokens_per_s.min),
        digits(row.tokens_per_s.max),
        time(row.first_token_s.median),
        or(row.token_s.map(|s| time(s.median))),
        or(row.tokens_until_steady.map(|n| n.to_string())),
        format!("{}{unit}", scaled(row.work)),
        or(row.share_of_limit.map(percent)),
        or(limit),
        or(row.footprint.map(|f| size(f.peak))),
        row.cached_tokens.to_string(),
    ]
}

fn range(summary: &Summary) -> String {
    match summary.interval {
        Some([low, high]) => format!("{}..{}", digits(low), digits(high)),
        None => "-".into(),
    }
}

fn csv_ours(row: &Row) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), |x| x.to_string());
    let bytes = |of: fn(&Footprint) -> u64| row.footprint.map_or(String::new(), |f| of(&f).to_string());
    let mut cells = vec!["nibble".to_owned()];
    cells.extend(csv_summary(&row.tokens_per_s));
    cells.extend([
        row.first_token_s.median.to_string(),
        number(row.token_s.map(|s| s.median)),
        row.tokens_until_steady.map_or(String::new(), |n| n.to_string()),
        row.work.to_string(),
        row.bound.name().into(),
        number(row.limit),
        number(row.share_of_limit),
        bytes(|f| f.total),
        bytes(|f| f.own),
        bytes(|f| f.peak),
        row.cached_tokens.to_string(),
        row.drafted_tokens.to_string(),
        row.accepted_tokens.to_string(),
    ]);
    cells.extend([const { String::new() }; 3]);
    cells
}

fn csv_theirs(against: &crate::report::Against) -> Vec<String> {
    let mut cells = vec![against.peer.clone()];
    cells.extend(csv_summary(&against.tokens_per_s));
    cells.extend([const { String::new() }; 13]);
    let [low, high] =
        against.ratio.interval.map_or([String::new(), String::new()], |i| i.map(|x| x.to_string()));
    cells.extend([against.ratio.median.to_string(), low, high]);
    cells
}

fn csv_summary(summary: &Summary) -> [String; 6] {
    let [low, high] = summary.interval.map_or([String::new(), String::new()], |i| i.map(|x| x.to_string()));
    [
        summary.median.to_string(),
        low,
        high,
        summary.min.to_string(),
        summary.max.to_string(),
        summary.repeats.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_text_says_who_how_and_what() {
        let report = sample();
        let text = report.to_text();
        for word in
            ["sha256", "generate 16 at 8", "50 %", "llama.cpp", "0.500", "note: ", "warm-up", "commit"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(text.lines().any(|line| line.contains("40.0 GB/s memory")), "{text}");
    }

    #[test]
    fn every_line_of_the_values_has_as_many_as_the_header() {
        let csv = sample().to_csv();
        let columns = CSV.split(',').count();
        let cells = |line: &str| {
            let mut quoted = false;
            1 + line
                .chars()
                .filter(|&c| {
                    quoted ^= c == '"';
                    c == ',' && !quoted
                })
                .count()
        };
        let counts: Vec<_> = csv.lines().map(cells).collect();
        assert_eq!(counts, vec![columns; 5], "{csv}");
    }
}
