//! A report as one page that needs nothing else: plots, all figures as tables, and the report itself as JSON.

#[cfg(test)]
mod browser;
mod plot;

use crate::{
    case::Task,
    report::{Bound, Report, Row},
    table::{AGAINST, COLUMNS, cells},
};
use plot::{Plot, Point, Series};
use std::{collections::BTreeMap, fmt::Write};

/// The page's style sheet.
const STYLE: &str = include_str!("html/page.css");

impl Report {
    /// The page.
    pub fn to_html(&self) -> String {
        let title = escape(&format!("nibble bench: {}", self.identity.model));
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
        );
        let identity = self.identity.to_string();
        let lines = identity.lines().filter_map(|line| line.split_once(' '));
        let circumstances = self.circumstances();
        let rest = circumstances.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in lines.chain(rest) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value.trim()));
        }
        out.push_str("</dl>\n<div class=\"plots\">\n");
        for plot in [self.roofline(), self.by_depth(), self.by_batch()] {
            out.push_str(&plot.to_html());
        }
        out.push_str("</div>\n<h2>Rows</h2>\n");
        out.push_str(&table(COLUMNS, &self.rows.iter().map(cells).collect::<Vec<_>>()));
        let against = self.against_cells();
        if !against.is_empty() {
            out.push_str("<h2>Against others</h2>\n");
            out.push_str(&table(AGAINST, &against));
        }
        for note in &self.notes {
            let _ = writeln!(out, "<p>{}</p>", escape(note));
        }
        // `<` must not end the element early.
        let json = serde_json::to_string(self).expect("plain data").replace('<', "\\u003c");
        let _ =
            writeln!(out, "<script type=\"application/json\" id=\"report\">{json}</script>\n</body></html>");
        out
    }

    /// The figures of all rows under the two limits of the device.
    fn roofline(&self) -> Plot {
        let row_points = |task: Task| {
            let rows = self.rows.iter().filter(move |row| row.case.task == task);
            rows.map(|row| Point { x: row.products_per_byte, y: row.products_per_s, interval: None })
                .collect()
        };
        let mut series = vec![
            Series { name: "prompts".into(), points: row_points(Task::Prefill), line: false, marks: true },
            Series { name: "generation".into(), points: row_points(Task::Decode), line: false, marks: true },
        ];
        if let Some(limits) = self.limits {
            let places = series.iter().flat_map(|s: &Series| s.points.iter().map(|p| p.x));
            let (low, high) = places.fold((1.0f64, 1000.0f64), |(low, high), x| (low.min(x), high.max(x)));
            let bandwidth = limits.read_bytes_per_s.median;
            for (bound, peak) in
                [(Bound::Int8, limits.int8_products_per_s), (Bound::F32, limits.f32_products_per_s)]
            {
                let Some(peak) = peak else { continue };
                let knee = peak.median / bandwidth;
                let xs = [low.min(knee), knee, high.max(knee)];
                let roof = |x: f64| Point { x, y: (x * bandwidth).min(peak.median), interval: None };
                let name = format!("limit, {}", bound.name());
                series.push(Series { name, points: xs.map(roof).to_vec(), line: true, marks: false });
            }
        }
        Plot {
            title: "Roofline".into(),
            x: "products for each byte read".into(),
            y: "products per second".into(),
            logarithmic: true,
            series,
        }
    }

    fn by_depth(&self) -> Plot {
        let of = |row: &Row| match row.case.batch {
            1 => format!("generate {}", row.case.tokens),
            batch => format!("generate {} x {batch}", row.case.tokens),
        };
        Plot {
            title: "Generation by depth".into(),
            x: "tokens there before".into(),
            y: "tokens per second, all sequences".into(),
            logarithmic: false,
            series: self.decode_series(of, |row| row.case.depth as f64),
        }
    }

    fn by_batch(&self) -> Plot {
        let of = |row: &Row| match row.case.depth {
            0 => format!("generate {}", row.case.tokens),
            depth => format!("generate {} at {depth}", row.case.tokens),
        };
        Plot {
            title: "Generation by batch".into(),
            x: "sequences at once".into(),
            y: "tokens per second, all sequences".into(),
            logarithmic: false,
            series: self.decode_series(of, |row| row.case.batch as f64),
        }
    }

    /// Rows of generation with one name as one line, ours and each peer's.
    fn decode_series(&self, name: impl Fn(&Row) -> String, x: impl Fn(&Row) -> f64) -> Vec<Series> {
        let mut lines: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.case.task == Task::Decode) {
            let ours = ("nibble", &row.tokens_per_s);
            for (side, summary) in
                [ours].into_iter().chain(row.against.iter().map(|a| (a.peer.as_str(), &a.tokens_per_s)))
            {
                let point = Point { x: x(row), y: summary.median, interval: summary.interval };
                lines.entry(format!("{side}, {}", name(row))).or_default().push(point);
            }
        }
        let series = |(name, mut points): (String, Vec<Point>)| {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series { name, points, line: true, marks: true }
        };
        lines.into_iter().map(series).collect()
    }
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = "<div class=\"wide\"><table><thead><tr>".to_owned();
    header.iter().for_each(|cell| _ = write!(out, "<th>{}</th>", escape(cell)));
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        row.iter().for_each(|cell| _ = write!(out, "<td>{}</td>", escape(cell)));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Text that stands between tags or in an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_page_holds_plots_tables_and_the_report_and_asks_for_nothing() {
        let report = sample();
        let page = report.to_html();
        assert_eq!((page.matches("<figure>").count(), page.matches("<table>").count()), (3, 2));
        assert!(page.contains("&lt;angle&gt; &amp; &quot;quotes&quot;"));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        let (_, rest) = page.split_once("id=\"report\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<Report>(json).unwrap(), report);
    }

    #[test]
    fn lines_join_rows_that_differ_in_one_thing() {
        let depths = sample().by_depth();
        let found: Vec<_> = depths.series.iter().map(|s| (s.name.as_str(), s.points.len())).collect();
        assert_eq!(found, [("llama.cpp, generate 16", 1), ("nibble, generate 16", 2)]);
        let batches = sample().by_batch();
        assert_eq!(batches.series.len(), 3);
    }
}
