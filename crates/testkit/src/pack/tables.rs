//! GGUF files with BitNet's TL1 and TL2, and the tiles they were cut into beside them.

use super::{gguf::tables, *};

/// `m`, `k`, `bm`, `bk` and `bmm` of each shape of the model.
type Tiles = [[usize; 5]; 4];

const TL1: Tiles =
    [[256, 256, 128, 64, 64], [128, 256, 64, 128, 32], [768, 256, 256, 128, 32], [256, 768, 128, 64, 64]];
const TL2: Tiles =
    [[256, 256, 128, 96, 32], [128, 256, 64, 192, 32], [768, 256, 256, 96, 32], [256, 768, 128, 192, 32]];

/// The file as the converter reads it.
fn config(tiles: Tiles) -> String {
    let section = |(i, [m, k, bm, bk, bmm]): (usize, [usize; 5])| {
        format!("[Kernels_{i}]\nm = {m}\nk = {k}\nbm = {bm}\nbk = {bk}\nbmm = {bmm}\n\n")
    };
    tiles.into_iter().enumerate().map(section).collect()
}

/// The place of an element in an array: dimensions and indices, outermost first.
fn at<const N: usize>(array: [(usize, usize); N]) -> usize {
    array.iter().fold(0, |place, (len, index)| place * len + index)
}

/// The high nibble first.
fn nibble(bytes: &mut [u8], at: usize, high: bool, value: u8) {
    bytes[at] |= if high { value << 4 } else { value };
}

fn pair(numbers: &[i8]) -> u8 {
    (3 * numbers[0] + numbers[1] + 4) as u8
}

fn tl1(numbers: &[i8], [m, k, bm, bk, bmm]: [usize; 5]) -> Vec<u8> {
    let (mut out, by) = (vec![0; m * k / 4], 256 / bmm);
    for (row, numbers) in numbers.chunks_exact(k).enumerate() {
        for (i, numbers) in numbers.chunks_exact(2).enumerate() {
            let column = 2 * i;
            let byte = at([
                (m / bm, row / bm),
                (k / bk, column / bk),
                (bm / bmm, row % bm / bmm),
                (bk / by, column % bk / by),
                (bmm / 16, row % bmm / 16),
                (by / 4, column % by / 4),
                (16, row % 16),
            ]);
            nibble(&mut out, byte, column % 4 == 0, pair(numbers));
        }
    }
    out
}

fn tl2(numbers: &[i8], [m, k, bm, bk, _]: [usize; 5]) -> Vec<u8> {
    let width = k - k % bk;
    let (signs, pairs) = (m * width / 6, m * width / 6 + m * width / 24);
    let mut out = vec![0; (k - 256) * m / 3 * 5 / 8 + 64 * m];
    for (row, numbers) in numbers.chunks_exact(k).enumerate() {
        let slot = [0, 2, 1, 3][row % 32 / 8] * 8 + row % 8;
        let (first, others) = numbers.split_at(width);
        let strip = |width: usize, bk: usize, column: usize| {
            at([(m / bm, row / bm), (width / bk, column / bk), (bm / 32, row % bm / 32)])
        };
        for (i, numbers) in first.chunks_exact(3).enumerate() {
            let (column, value) = (3 * i, 9 * numbers[0] + 3 * numbers[1] + numbers[2]);
            let strip = (m * width / bk / 32, strip(width, bk, column));
            let byte = at([strip, (bk / 6, column % bk / 6), (32, slot)]);
            nibble(&mut out, byte, column % 6 == 0, value.unsigned_abs());
            let word = at([strip, (bk / 24, column % bk / 24), (16, row % 16)]);
            let bit = 15 - (2 * (column % 24 / 3) + row % 32 / 16);
            out[signs + 2 * word + bit / 8] |= u8::from(value < 0) << (bit % 8);
        }
        for (i, numbers) in others.chunks_exact(2).enumerate() {
            let (width, column) = (k % bk, 2 * i);
            let strip = (m * width / 32 / 32, strip(width, 32, column));
            let byte = at([strip, (8, column % 32 / 4), (32, slot)]);
            nibble(&mut out[pairs..], byte, column % 4 == 0, pair(numbers));
        }
    }
    out
}

/// Writes the numbers of a matrix in its tiling.
type Pack = fn(&[i8], [usize; 5]) -> Vec<u8>;

fn case(name: &str, id: u32, tiles: Tiles, pack: Pack) -> Case {
    Case::new(name, move |plain| {
        let own = |m: &Matrix| *tiles.iter().find(|t| t[..2] == [m.rows, m.columns]).expect("a tiling");
        let file = tables(plain, id, |m, numbers| pack(numbers, own(m)));
        Written::Tiled { file, tiles: config(tiles) }
    })
}

pub(super) fn cases() -> Vec<Case> {
    vec![case("gguf-tl1", 38, TL1, tl1), case("gguf-tl2", 39, TL2, tl2)]
}
