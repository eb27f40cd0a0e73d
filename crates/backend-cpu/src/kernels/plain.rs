//! What kernels without hand-written forms of every encoding share: chunks expanded by plain Rust.

use super::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, code_place};
use super::format::{Chunk, Format};
use super::matmul::{Job, TILE_ROWS, TileMut};

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Expands chunk `q` of a row; what lies past the row's end is zero.
#[inline(always)]
pub fn expand<F: Format>(row: &[u8], q: usize, out: &mut Chunk) {
    let rest = &row[q * F::CHUNK_BYTES..];
    if let Some(bytes) = rest.get(..F::CHUNK_BYTES) {
        F::expand(bytes, out);
    } else {
        let mut padded = [0; LONGEST];
        padded[..rest.len()].copy_from_slice(rest);
        F::expand(&padded[..F::CHUNK_BYTES], out);
    }
}

/// Unpacks [`TILE_ROWS`] rows from `first` on, as their format has them; rows past the end of the job repeat its last.
/// Codes of formats with a bias of 128 become signed.
#[inline(always)]
pub fn fill<F: Format>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
    let mut chunk = Chunk::ZERO;
    let flip = if F::BIAS == 128 { 0x80 } else { 0 };
    let (order, parts) = if F::FINE { (FINE_ORDER, 2) } else { (COARSE_ORDER, 1) };
    for r in 0..TILE_ROWS {
        let row = job.row((first + r).min(job.end - 1));
        let (half, lane) = (r / 16, r % 16);
        for q in 0..job.row_len.div_ceil(CHUNK) {
            expand::<F>(row, q, &mut chunk);
            for group in 0..8 {
                for v in 0..8 {
                    let from = code_place(32 * group + 4 * v);
                    let to =
                        &mut tile.codes[tile.codes_at::<F>(q, group, v) + half].0[4 * lane..4 * lane + 4];
                    for i in 0..4 {
                        to[i] = chunk.codes[from + i] ^ flip;
                    }
                }
            }
            for part in 0..parts {
                for place in 0..8 {
                    let at = tile.group_at::<F>(q, part, order[place]) + half;
                    tile.scale[at].0[lane] = chunk.scale[8 * part + place];
                    tile.offset[at].0[lane] = chunk.offset[8 * part + place];
                }
            }
        }
    }
}

/// The entry points of every format on an instruction set, whose `rows` and `tile` modules are in scope.
macro_rules! plain_kernels {
    ($features:literal) => {
        use $crate::kernels::expand::*;
        use $crate::kernels::format::{CoarseChunk, FineChunk};
        use $crate::kernels::matmul::{Blocks, Job, Tile, TileMut};

        macro_rules! blocks {
            ($name:literal, $format:ty) => {{
                #[target_feature(enable = $features)]
                fn few(job: &Job<'_>) {
                    rows::product::<$format>(job);
                }
                #[target_feature(enable = $features)]
                fn fill(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
                    $crate::kernels::plain::fill::<$format>(job, first, tile);
                }
                #[target_feature(enable = $features)]
                fn tile(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
                    tile::product::<$format>(job, first, tile);
                }
                Blocks { name: $name, few, fill, tile }
            }};
        }

        /// Unpacked rows with groups of 32.
        pub const COARSE: Blocks = blocks!("unpacked, groups of 32", CoarseChunk);
        /// Unpacked rows with groups of 16.
        pub const FINE: Blocks = blocks!("unpacked, groups of 16", FineChunk);
        /// Every encoding with a plain form.
        pub static KERNELS: &[Blocks] = &[
            blocks!("q4_0", Q4_0),
            blocks!("q4_1", Q4_1),
            blocks!("q5_0", Q5_0),
            blocks!("q5_1", Q5_1),
            blocks!("q8_0", Q8_0),
            blocks!("q4_k", Q4K),
            blocks!("q5_k", Q5K),
            blocks!("q6_k", Q6K),
            blocks!("iq4_nl", Iq4Nl),
            blocks!("iq4_xs", Iq4Xs),
            blocks!("tq2_0", Tq2_0),
            blocks!("q2_0", Q2_0),
        ];
    };
}
pub(super) use plain_kernels;
