//! Plots as inline SVG: axes with round ticks, lines, points with their intervals. Colours are variables of the page, so
//! that a plot follows its light or dark scheme.

use super::escape;
use std::fmt::Write;

/// The picture and the space that axes take of it.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Colours in the page's style sheet: `--s0` and so on.
pub const COLOURS: usize = 6;

/// A plot.
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The name of the horizontal axis, with its unit.
    pub x: String,
    /// The name of the vertical axis, with its unit.
    pub y: String,
    /// Whether both axes are logarithmic; else they begin at zero.
    pub logarithmic: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Points of one colour.
pub struct Series {
    /// What they are, for the legend.
    pub name: String,
    /// The points.
    pub points: Vec<Point>,
    /// Whether a line goes through them.
    pub line: bool,
    /// Whether the points are marked.
    pub marks: bool,
}

/// A point and, if it has one, its interval.
#[derive(Clone, Copy)]
pub struct Point {
    /// Its place.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// The interval of its value.
    pub interval: Option<[f64; 2]>,
}

/// One axis: from values to pixels.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Pixels of the two ends.
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, logarithmic: bool, from: f64, to: f64) -> Self {
        let usable = values.filter(|&v| v.is_finite() && (!logarithmic || v > 0.0));
        let high = usable.clone().fold(f64::NEG_INFINITY, f64::max);
        let low = usable.fold(f64::INFINITY, f64::min);
        let (low, high) = match logarithmic {
            _ if !high.is_finite() || high <= 0.0 => (if logarithmic { 1.0 } else { 0.0 }, 10.0),
            true => (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.01).log10().ceil())),
            false => (0.0, high * 1.08),
        };
        Self { low, high, logarithmic, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + share * (self.to - self.from)
    }

    /// Powers of ten, or about five multiples of 1, 2 or 5 times one.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let rough = self.high / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= rough).unwrap_or(10.0) * power;
        (0..=10).map(|i| f64::from(i) * step).take_while(|&v| v <= self.high).collect()
    }
}

impl Plot {
    /// The picture with its legend, as a `figure` element.
    pub fn to_html(&self) -> String {
        let points = || self.series.iter().flat_map(|s| s.points.iter());
        let x = Axis::new(points().map(|p| p.x), self.logarithmic, LEFT, WIDTH - RIGHT);
        let values = points().flat_map(|p| [Some(p.y), p.interval.map(|i| i[1])].into_iter().flatten());
        let y = Axis::new(values, self.logarithmic, HEIGHT - BOTTOM, TOP);
        let mut out = format!(
            "<figure><figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\">\n",
            title = escape(&self.title)
        );
        self.axes(&x, &y, &mut out);
        for (i, series) in self.series.iter().enumerate() {
            series.draw(i, &x, &y, &mut out);
        }
        out.push_str("</svg>\n<p class=\"legend\">");
        for (i, series) in self.series.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(out, "<span><i class=\"f{}\"></i>{}</span>", i % COLOURS, escape(&series.name));
        }
        out.push_str("</p></figure>\n");
        out
    }

    fn axes(&self, x: &Axis, y: &Axis, out: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                label(tick)
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            escape(&self.x),
            (TOP + bottom) / 2.0,
            escape(&self.y)
        );
    }
}

impl Series {
    fn draw(&self, index: usize, x: &Axis, y: &Axis, out: &mut String) {
        let colour = index % COLOURS;
        let places: Vec<_> = self.points.iter().map(|p| (x.place(p.x), y.place(p.y))).collect();
        if self.line && places.len() > 1 {
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = writeln!(out, "<path class=\"line c{colour}\" d=\"M{}\"/>", path.join("L"));
        }
        for (point, (at_x, at_y)) in self.points.iter().zip(places) {
            if let Some([low, high]) = point.interval {
                let (low, high) = (y.place(low), y.place(high));
                let _ = writeln!(
                    out,
                    "<path class=\"line c{colour}\" d=\"M{at_x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\"/>",
                    at_x - 4.0,
                    at_x - 4.0
                );
            }
            if self.marks {
                let title = format!("{}: {}, {}", escape(&self.name), label(point.x), label(point.y));
                let _ = writeln!(
                    out,
                    "<circle class=\"f{colour}\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"5\"><title>{title}</title></circle>"
                );
            }
        }
    }
}

/// A value beside a tick.
fn label(value: f64) -> String {
    let (mut value, mut prefix) = (value, "");
    for next in ["k", "M", "G", "T", "P"] {
        if value.abs() < 1000.0 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    format!("{}{prefix}", (value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_axis() {
        let axis = |high, log| Axis::new([1.0, high].into_iter(), log, 0.0, 100.0);
        assert_eq!(axis(43.0, false).ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(axis(900.0, true).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(axis(900.0, true).place(1.0), 0.0);
        assert_eq!((label(0.5), label(2000.0), label(0.0)), ("0.5".into(), "2k".into(), "0".into()));
    }

    #[test]
    fn every_point_is_drawn_and_nothing_broken_is() {
        let point = |x, y| Point { x, y, interval: Some([y * 0.9, y * 1.1]) };
        for logarithmic in [false, true] {
            for points in [vec![], vec![point(1.0, 2.0)], vec![point(1.0, 2.0), point(512.0, 1.5)]] {
                let count = points.len();
                let series = vec![Series { name: "<a>".into(), points, line: true, marks: true }];
                let plot = Plot { title: "t".into(), x: "x".into(), y: "y".into(), logarithmic, series };
                let html = plot.to_html();
                assert_eq!(html.matches("<circle").count(), count);
                assert!(!html.contains("NaN") && !html.contains("inf") && !html.contains("<a>"), "{html}");
            }
        }
    }
}
