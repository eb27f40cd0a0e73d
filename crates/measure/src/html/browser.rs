//! Whether a browser shows the page: of a report of known numbers, so that the picture is the same each time.

use crate::{
    case::{Case, Task},
    report::{Report, sample},
    stats::Summary,
};
use nibble_testkit::TempDir;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Colours of the page's light scheme: the first two series.
const COLOURS: [[u8; 3]; 2] = [[0x0b, 0x6b, 0xcb], [0xc2, 0x41, 0x0c]];

/// Generation at two depths and two batches, at rates so far apart that no line covers another.
fn report() -> Report {
    let mut report = sample();
    let decode = report.rows.iter().find(|row| row.case.task == Task::Decode).cloned().expect("a row");
    report.rows.retain(|row| row.case.task == Task::Prefill);
    for (depth, batch, rate) in [(0, 1, 20.0), (8, 1, 10.0), (0, 2, 60.0), (8, 2, 50.0)] {
        let mut row = decode.clone();
        row.case = Case { depth, batch, ..row.case };
        row.tokens_per_s = Summary::of(&[rate - 1.0, rate, rate + 1.0]).expect("finite takes");
        report.rows.push(row);
    }
    report
}

#[test]
fn a_browser_shows_every_plot_of_the_page() {
    let scratch = TempDir::new("page");
    let html = report().to_html();
    let Some(browser) = browser() else {
        eprintln!("SKIPPED: no Chromium (scripts/setup-browser.sh installs one)");
        return;
    };
    for plot in 1..=3 {
        // One plot at a time, without its legend, so that whatever has a series' colour was drawn in the plot.
        let only =
            format!("<style>.legend, figure:not(:nth-of-type({plot})) {{ display: none }}</style></head>");
        let shown = scratch.file(&format!("plot-{plot}.html"));
        std::fs::write(&shown, html.replace("</head>", &only)).unwrap();
        let picture = scratch.file(&format!("plot-{plot}.png"));
        screenshot(&browser, &shown, &picture);
        let pixels = pixels(&picture);
        for colour in COLOURS {
            let near = |p: &[u8; 3]| p.iter().zip(colour).all(|(&a, b)| a.abs_diff(b) < 12);
            let count = pixels.iter().filter(|p| near(p)).count();
            assert!(count > 30, "plot {plot}: {count} pixels of {colour:?}, in {}", picture.display());
        }
    }
}

/// A Chromium that starts.
fn browser() -> Option<PathBuf> {
    let given = std::env::var_os("NIBBLE_BROWSER").map(PathBuf::from);
    let names = ["chromium", "chromium-browser", "chrome-headless-shell", "google-chrome"].map(PathBuf::from);
    let starts = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).output().is_ok_and(|out| out.status.success())
    };
    given.into_iter().chain(names).find(starts)
}

fn screenshot(browser: &Path, page: &Path, picture: &Path) {
    let profile = picture.with_extension("profile");
    let mut command = Command::new(browser);
    // In a container there is neither a sandbox for root nor a large /dev/shm.
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ]);
    command.args(["--force-color-profile=srgb", "--window-size=1200,1400"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", page.display()));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(picture.exists(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn pixels(picture: &Path) -> Vec<[u8; 3]> {
    let file = std::io::BufReader::new(std::fs::File::open(picture).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!(info.bit_depth, png::BitDepth::Eight);
    let samples = info.color_type.samples();
    assert!(samples >= 3, "a picture in colour");
    bytes[..info.buffer_size()].chunks_exact(samples).map(|p| [p[0], p[1], p[2]]).collect()
}
