//! The bank of keys and values: pages of 64 positions over all attention layers.
//!
//! A page holds, for each layer and each head, the keys and then the values of 64 positions, so that attention reads
//! one head of one page as two straight runs. Keys lie dimension by dimension, `[key_dim, 64]`: vectors of scores are
//! then sums of vectors as they are. Values lie position by position, `[64, value_dim]`.
//!
//! Numbers are floats (f32, f16) or codes of blocks of 32 dimensions (q8_0, q4_0), to which rows are filled up with
//! zeros. Behind the codes of a head are the scales of its blocks, `[blocks, 64]` in half precision. A byte of q4_0 holds
//! dimensions `d` and `d + 16` of a block.

use crate::{hadamard::rotate, parts::Parts};
use half::{f16, slice::HalfFloatSliceExt};
use nibble_backend::{KvType, PAGE_LEN};
use nibble_graph::KvLayer;
use nibble_quant::Encode;
use std::ops::Range;

/// Where everything is in a page.
#[derive(Clone, Debug)]
pub struct KvLayout {
    /// How numbers are kept.
    pub kv: KvType,
    /// Bytes in a page.
    pub page_bytes: usize,
    layers: Vec<LayerLayout>,
}

#[derive(Clone, Debug)]
struct LayerLayout {
    start: usize,
    key_row: usize,
    value_row: usize,
}

impl KvLayout {
    /// The layout of a page.
    pub fn new(layers: &[KvLayer], kv: KvType) -> Self {
        let mut page_bytes = 0;
        let layers = layers
            .iter()
            .map(|keys| {
                let (key_row, value_row) = (kv.row_bytes(keys.key_dim), kv.row_bytes(keys.value_dim));
                let start = page_bytes;
                page_bytes += keys.kv_heads * (key_row + value_row) * PAGE_LEN;
                LayerLayout { start, key_row, value_row }
            })
            .collect();
        Self { kv, page_bytes, layers }
    }

    /// Where the keys and the values of one head lie in the bank.
    pub fn head(&self, page: u32, layer: usize, head: usize) -> (Range<usize>, Range<usize>) {
        let l = &self.layers[layer];
        let keys = page as usize * self.page_bytes + l.start + head * (l.key_row + l.value_row) * PAGE_LEN;
        let values = keys + l.key_row * PAGE_LEN;
        (keys..values, values..values + l.value_row * PAGE_LEN)
    }
}

/// Dimensions of a block.
pub const BLOCK: usize = 32;

/// How the numbers of one head lie: units of some bytes, each for one position and one or two dimensions.
#[derive(Clone, Copy)]
pub struct Units {
    /// Units of a position.
    pub count: usize,
    /// Bytes of a unit.
    pub bytes: usize,
    /// Blocks of a position; none for floats.
    pub blocks: usize,
}

impl Units {
    /// Those of rows of `dim` numbers.
    pub fn new(kv: KvType, dim: usize) -> Self {
        let blocks = dim.div_ceil(BLOCK);
        match kv {
            KvType::F32 => Self { count: dim, bytes: 4, blocks: 0 },
            KvType::F16 => Self { count: dim, bytes: 2, blocks: 0 },
            KvType::Q8_0 => Self { count: blocks * BLOCK, bytes: 1, blocks },
            KvType::Q4_0 => Self { count: blocks * BLOCK / 2, bytes: 1, blocks },
        }
    }

    /// Where the scales begin.
    pub fn scales(self) -> usize {
        self.count * self.bytes * PAGE_LEN
    }
}

/// Which way the numbers of a head lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All positions of a dimension together.
    Keys,
    /// All dimensions of a position together.
    Values,
}

/// Writes one row of one head as the bank keeps it, at `position` of a page. The head begins at byte `start` of the bank.
/// `spare` has room for the row, rounded up to whole blocks.
///
/// # Safety
/// While it runs, nobody else may use this position of the head.
pub unsafe fn write(
    kv: KvType,
    order: Order,
    bank: Parts<'_, u8>,
    (start, position): (usize, usize),
    row: &[f32],
    spare: &mut [f32],
) {
    let units = Units::new(kv, row.len());
    let put = |at: usize, bytes: &[u8]| {
        // SAFETY: the bytes belong to the position.
        unsafe { bank.part(start + at..start + at + bytes.len()) }.copy_from_slice(bytes);
    };
    let put_unit = |unit: usize, bytes: &[u8]| {
        let place =
            if order == Order::Keys { unit * PAGE_LEN + position } else { position * units.count + unit };
        put(place * units.bytes, bytes);
    };
    match kv {
        KvType::F32 => row.iter().enumerate().for_each(|(d, x)| put_unit(d, &x.to_ne_bytes())),
        KvType::F16 => {
            // Many at a time, as the conversion first looks up what the processor can do.
            let mut half = [f16::ZERO; 64];
            for (i, row) in row.chunks(half.len()).enumerate() {
                half[..row.len()].convert_from_f32_slice(row);
                for (d, x) in half[..row.len()].iter().enumerate() {
                    put_unit(64 * i + d, &x.to_ne_bytes());
                }
            }
        }
        KvType::Q8_0 | KvType::Q4_0 => {
            let spare = &mut spare[..units.blocks * BLOCK];
            spare[..row.len()].copy_from_slice(row);
            spare[row.len()..].fill(0.0);
            if kv == KvType::Q4_0 {
                rotate(&mut spare[..row.len()]);
            }
            let encoder = encoder(kv);
            let mut encoded = [0; 2 + BLOCK];
            let codes = units.count / units.blocks;
            for (block, numbers) in spare.chunks_exact(BLOCK).enumerate() {
                encoder.encode_row(numbers, None, &mut encoded[..2 + codes]);
                put(units.scales() + 2 * (block * PAGE_LEN + position), &encoded[..2]);
                for (i, code) in encoded[2..2 + codes].iter().enumerate() {
                    put_unit(block * codes + i, &[*code]);
                }
            }
        }
    }
}

fn encoder(kv: KvType) -> &'static dyn Encode {
    let name = if kv == KvType::Q8_0 { "q8_0" } else { "q4_0" };
    nibble_quant::codec(name).encoder().expect("block types of the bank can be written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::uniform;

    #[test]
    fn heads_tile_a_page_without_gaps() {
        let layers = [
            KvLayer { kv_heads: 2, key_dim: 16, value_dim: 48 },
            KvLayer { kv_heads: 3, key_dim: 64, value_dim: 64 },
        ];
        for (_, kv) in KvType::ALL {
            let layout = KvLayout::new(&layers, kv);
            let mut next = layout.page_bytes;
            for (layer, heads) in [(0, 2), (1, 3)] {
                for head in 0..heads {
                    let (keys, values) = layout.head(1, layer, head);
                    assert_eq!((keys.start, keys.end), (next, values.start), "{kv}");
                    next = values.end;
                }
            }
            assert_eq!(next, 2 * layout.page_bytes);
        }
    }

    #[test]
    fn rows_read_back_as_their_codec_decodes_them() {
        for (name, kv) in KvType::ALL {
            let codec = nibble_quant::codec(name);
            for (len, order) in
                [(16, Order::Keys), (80, Order::Keys), (48, Order::Values), (64, Order::Values)]
            {
                let units = Units::new(kv, len);
                let mut bank = vec![0xAA; 3 + kv.row_bytes(len) * PAGE_LEN];
                let whole = len.next_multiple_of(BLOCK);
                let mut spare = vec![0.0; whole];
                for position in 0..PAGE_LEN {
                    let row = uniform((len + position) as u64, len);
                    // SAFETY: nobody else uses the bank.
                    unsafe { write(kv, order, Parts::new(&mut bank), (3, position), &row, &mut spare) };
                }
                for position in [0, 1, 63] {
                    let at = |unit: usize| {
                        let keys = order == Order::Keys;
                        3 + units.bytes
                            * if keys { unit * PAGE_LEN + position } else { position * units.count + unit }
                    };
                    let mut row = Vec::new();
                    for unit in 0..units.count {
                        if units.blocks > 0 && unit % (units.count / units.blocks) == 0 {
                            let block = unit / (units.count / units.blocks);
                            let scale = 3 + units.scales() + 2 * (block * PAGE_LEN + position);
                            row.extend_from_slice(&bank[scale..scale + 2]);
                        }
                        row.extend_from_slice(&bank[at(unit)..at(unit) + units.bytes]);
                    }
                    let mut found = vec![0.0; if units.blocks > 0 { whole } else { len }];
                    codec.decode_row(&row, &mut found);
                    if kv == KvType::Q4_0 {
                        rotate(&mut found[..len]);
                    }
                    let expected = uniform((len + position) as u64, len);
                    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    let most = match kv {
                        KvType::F32 => 0.0,
                        KvType::F16 => 0.001,
                        KvType::Q8_0 => 0.01,
                        KvType::Q4_0 => 0.5,
                    };
                    assert!(worst <= most, "{kv} {len}: {worst}");
                }
            }
        }
    }
}
