//! The README's picture: what a terminal shows, as SVG, from a real run.

use crate::run::{command, root};
use std::fmt::Write;

/// Characters in a line, pixels of a character and of a line.
const COLUMNS: usize = 92;
const CHAR: f64 = 8.4;
const LINE: usize = 20;

/// Runs the built-in model and draws the command, the story and the summary.
///
/// # Errors
/// If the command fails or the file cannot be written.
pub fn run() -> Result<(), String> {
    let args =
        ["run", "--release", "--quiet", "--", "run", "Tell me a story about a brave fox.", "--seed", "1"];
    let out = command("cargo", &args).output().map_err(|e| format!("cargo: {e}"))?;
    let (story, figures) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        return Err(figures.into_owned());
    }
    let mut lines =
        vec![("#8be9fd", "$ nibble run \"Tell me a story about a brave fox.\" --seed 1".to_owned())];
    lines.extend(wrap(story.trim()).map(|line| ("#f8f8f2", line)));
    lines.extend(wrap(figures.trim()).map(|line| ("#8a8fa3", line)));
    let (width, height) = (COLUMNS as f64 * CHAR + 32.0, lines.len() * LINE + 32);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" font-family=\"ui-monospace, \
         Menlo, Consolas, monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#20222c\"/>\n"
    );
    for (i, (colour, line)) in lines.iter().enumerate() {
        let text = line.replace('&', "&amp;").replace('<', "&lt;");
        let y = 30 + i * LINE;
        // Writing to a string cannot fail.
        let _ =
            writeln!(svg, "<text x=\"16\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{text}</text>");
    }
    svg.push_str("</svg>\n");
    let path = root().join("assets/run.svg");
    std::fs::write(&path, svg).map_err(|e| format!("{}: {e}", path.display()))
}

/// Lines of at most [`COLUMNS`] characters, cut at spaces.
fn wrap(text: &str) -> impl Iterator<Item = String> {
    let mut lines = vec![];
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.into_iter()
}
