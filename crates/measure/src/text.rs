//! Figures as people read them.

use std::fmt::Write;

/// A time: seconds from one second on, else ms or us.
pub fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.1} us", seconds * 1e6)
    }
}

/// Bytes in binary units.
pub fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") }
}

/// A number with three digits that count and a decimal prefix: `1.23 G`, `45.6 M`.
pub fn scaled(value: f64) -> String {
    let (mut value, mut prefix) = (value, "");
    for next in ["k", "M", "G", "T"] {
        if value.abs() < 1000.0 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    format!("{} {prefix}", digits(value))
}

/// A number with three digits that count.
pub fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A share in per cent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Rows of cells under a header, columns as wide as their widest cell; the first column to the left, the others to the
/// right. Every line ends with a newline.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let header: Vec<_> = header.iter().map(|&cell| cell.to_owned()).collect();
    let mut out = String::new();
    for row in [&header].into_iter().chain(rows) {
        let mut line = String::new();
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match i {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_numbers_read_well() {
        assert_eq!(
            (time(1.5), time(0.0025), time(9e-7)),
            ("1.50 s".into(), "2.5 ms".into(), "0.9 us".into())
        );
        assert_eq!((size(512), size(3 << 19)), ("512 B".into(), "1.50 MiB".into()));
        assert_eq!((scaled(1.234e9), scaled(45600.0)), ("1.23 G".into(), "45.6 k".into()));
        assert_eq!(
            (digits(0.5), digits(123.4), percent(0.456)),
            ("0.500".into(), "123".into(), "46 %".into())
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".into()], vec!["long".into(), "22".into()]];
        assert_eq!(table(&["x", "n"], &rows), "x      n\na      1\nlong  22\n");
    }
}
