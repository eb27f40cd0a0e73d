//! How the tiles of BitNet's table kernels are cut: constants of the kernels that a file was made for, which it leaves out.
//!
//! The publisher's converter takes them from `kernel_config.ini`; a file of that name beside the model is read first.
//! Else they are those that the publisher's set-up writes there for the three models whose shapes it knows. Its tuned
//! `kernel_config_tl1.ini` for Llama3-8B differs from them (`bmm` 64, 32, 64, 32), but the set-up always replaces it.
//! Source: microsoft/BitNet 16da220a, `setup_env.py`, `preset_kernels/` and `docs/codegen.md`.

use super::tables::Table;
use crate::{Error, Problem, map};
use std::{io::Read, path::Path};

/// The file that holds tilings.
const FILE: &str = "kernel_config.ini";
/// It has five short lines for each shape of a model.
const MAX_BYTES: u64 = 1 << 16;

/// The tiling of matrices of one shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Rows of the matrices (`m`).
    pub rows: usize,
    /// Columns of the matrices (`k`).
    pub columns: usize,
    /// Rows of a tile (`bm`).
    pub tile_rows: usize,
    /// Columns of a tile (`bk`).
    pub tile_columns: usize,
    /// Rows of a tile that are computed together (`bmm`).
    pub strip: usize,
}

const fn tiling([rows, columns, tile_rows, tile_columns, strip]: [usize; 5]) -> Tiling {
    Tiling { rows, columns, tile_rows, tile_columns, strip }
}

/// Tilings that were published: bitnet_b1_58-large, bitnet_b1_58-3B, Llama3-8B-1.58-100B-tokens.
static PUBLISHED: &[(Table, &[Tiling])] = &[
    (
        Table::Tl1,
        &[
            tiling([1536, 4096, 256, 128, 32]),
            tiling([1536, 1536, 128, 64, 64]),
            tiling([4096, 1536, 256, 128, 32]),
        ],
    ),
    (
        Table::Tl1,
        &[
            tiling([3200, 8640, 160, 64, 32]),
            tiling([3200, 3200, 320, 128, 64]),
            tiling([8640, 3200, 320, 64, 32]),
        ],
    ),
    (
        Table::Tl1,
        &[
            tiling([14336, 4096, 256, 128, 32]),
            tiling([4096, 14336, 256, 128, 64]),
            tiling([1024, 4096, 128, 64, 32]),
            tiling([4096, 4096, 128, 64, 64]),
        ],
    ),
    (
        Table::Tl2,
        &[
            tiling([1536, 4096, 256, 96, 32]),
            tiling([1536, 1536, 128, 192, 32]),
            tiling([4096, 1536, 256, 96, 32]),
        ],
    ),
    (
        Table::Tl2,
        &[
            tiling([3200, 8640, 160, 96, 32]),
            tiling([3200, 3200, 320, 96, 32]),
            tiling([8640, 3200, 320, 96, 32]),
        ],
    ),
    (
        Table::Tl2,
        &[
            tiling([14336, 4096, 256, 96, 32]),
            tiling([4096, 14336, 128, 96, 32]),
            tiling([1024, 4096, 256, 96, 32]),
            tiling([4096, 4096, 128, 96, 32]),
        ],
    ),
];

/// The published tilings of a model, given what its matrices are (`[rows, columns]`); none if it is not a known one.
pub(super) fn published(matrices: &[(Table, [usize; 2])]) -> &'static [Tiling] {
    let of_model = |(table, tilings): &&(Table, &[Tiling])| {
        matrices.iter().all(|(own, shape)| own == table && find(tilings, *shape).is_some())
    };
    PUBLISHED.iter().find(of_model).map_or(&[], |(_, tilings)| tilings)
}

/// The tiling of a shape.
pub(super) fn find(tilings: &[Tiling], shape: [usize; 2]) -> Option<&Tiling> {
    tilings.iter().find(|tiling| [tiling.rows, tiling.columns] == shape)
}

/// The tilings in the file beside a model, if there is one.
///
/// # Errors
/// If it cannot be read, or a section lacks one of `m`, `k`, `bm`, `bk` and `bmm`.
pub(super) fn beside(model: &Path) -> Result<Option<Vec<Tiling>>, Error> {
    let path = model.with_file_name(FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    map::open(&path)?.take(MAX_BYTES).read_to_string(&mut text).map_err(|e| Problem::Io(e).at_path(&path))?;
    parse(&text).map(Some).map_err(|e| e.within(path.display().to_string()))
}

/// Sections of `key = value`; other keys are passed over.
fn parse(text: &str) -> Result<Vec<Tiling>, Error> {
    let mut tilings = Vec::new();
    for section in text.split('[').skip(1) {
        let (name, body) = section.split_once(']').unwrap_or((section, ""));
        let number = |key: &str| {
            let pairs = body.lines().filter_map(|line| line.split_once('='));
            let value = pairs.filter(|(k, _)| k.trim() == key).map(|(_, value)| value.trim()).next();
            match value.and_then(|value| value.parse().ok()) {
                Some(number @ 1..) => Ok(number),
                _ => Err(Problem::expected(format!("`{key}` from 1 on"), value.unwrap_or("nothing"))),
            }
        };
        let found = || -> Result<_, Problem> {
            Ok([number("m")?, number("k")?, number("bm")?, number("bk")?, number("bmm")?])
        };
        tilings.push(tiling(found().map_err(|p| p.at(format!("section `{:.40}`", name.trim())))?));
    }
    Ok(tilings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_tiling_fits_its_shape() {
        for (table, tilings) in PUBLISHED {
            for t in *tilings {
                table.check(t).unwrap();
                assert_eq!(published(&[(*table, [t.rows, t.columns])]), *tilings);
            }
        }
        // Shapes of two models are no model.
        assert!(published(&[(Table::Tl1, [1536, 1536]), (Table::Tl1, [3200, 3200])]).is_empty());
        assert!(published(&[(Table::Tl1, [1536, 1536]), (Table::Tl2, [1536, 1536])]).is_empty());
    }

    #[test]
    fn sections_are_read_and_what_they_lack_is_told() {
        let text = "[Kernels_0]\nm = 64\nk=96\nbm = 32\nbk = 48\nbmm = 16\n\n[Kernels_1]\nm = 1\nk = 2\nbm = 3\nbk = 4\nbmm = 5\n";
        assert_eq!(parse(text).unwrap(), [tiling([64, 96, 32, 48, 16]), tiling([1, 2, 3, 4, 5])]);
        for (wrong, words) in [
            (
                "[Kernels_0]\nm = 64\nk = 96\nbm = 32\nbk = 48\n",
                "section `Kernels_0`: expected `bmm` from 1 on, found nothing",
            ),
            ("[a]\nm = 0\n", "section `a`: expected `m` from 1 on, found 0"),
            ("[a]\nm = many\n", "found many"),
            ("[a", "section `a`"),
        ] {
            let message = parse(wrong).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        assert!(parse("nothing").unwrap().is_empty());
    }
}
