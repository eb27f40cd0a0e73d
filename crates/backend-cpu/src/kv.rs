//! The bank of keys and values: pages of 64 positions over all attention layers.
//!
//! A page holds, for each layer and each head, 64 rows of keys and then 64 rows of values, so that attention reads one
//! head of one page as two straight runs. Rows are numbers (f32, f16) or blocks (q8_0, q4_0).

use crate::hadamard::rotate;
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

    /// Bytes of a row of keys and of a row of values.
    pub fn row_bytes(&self, layer: usize) -> (usize, usize) {
        (self.layers[layer].key_row, self.layers[layer].value_row)
    }

    /// Where the keys and the values of one head lie in the bank.
    pub fn head(&self, page: u32, layer: usize, head: usize) -> (Range<usize>, Range<usize>) {
        let l = &self.layers[layer];
        let keys = page as usize * self.page_bytes + l.start + head * (l.key_row + l.value_row) * PAGE_LEN;
        let values = keys + l.key_row * PAGE_LEN;
        (keys..values, values..values + l.value_row * PAGE_LEN)
    }
}

/// Writes one row (`row.len()` numbers of one head) as the bank keeps it. `spare` has room for the row, rounded up to
/// whole blocks of 32.
pub fn encode(kv: KvType, row: &[f32], spare: &mut [f32], out: &mut [u8]) {
    let blocks = |encode: &dyn Encode, spare: &mut [f32], out: &mut [u8]| {
        let spare = &mut spare[..row.len().next_multiple_of(32)];
        spare[..row.len()].copy_from_slice(row);
        spare[row.len()..].fill(0.0);
        if kv == KvType::Q4_0 {
            rotate(&mut spare[..row.len()]);
        }
        encode.encode_row(spare, None, out);
    };
    match kv {
        KvType::F32 => {
            for (out, x) in out.chunks_exact_mut(4).zip(row) {
                out.copy_from_slice(&x.to_ne_bytes());
            }
        }
        KvType::F16 => {
            let mut half = [f16::ZERO; 64];
            for (out, row) in out.chunks_mut(128).zip(row.chunks(64)) {
                half[..row.len()].convert_from_f32_slice(row);
                for (out, h) in out.chunks_exact_mut(2).zip(&half) {
                    out.copy_from_slice(&h.to_ne_bytes());
                }
            }
        }
        KvType::Q8_0 => blocks(encoder("q8_0"), spare, out),
        KvType::Q4_0 => blocks(encoder("q4_0"), spare, out),
    }
}

fn encoder(name: &str) -> &'static dyn Encode {
    nibble_quant::codec(name).encoder().expect("block types of the bank can be written")
}

/// Reads one row back, for the block types. `out` has room for whole blocks.
pub fn decode_blocks(kv: KvType, row: &[u8], out: &mut [f32]) {
    let d = |block: &[u8]| f16::from_le_bytes([block[0], block[1]]).to_f32();
    if kv == KvType::Q8_0 {
        for (out, block) in out.chunks_exact_mut(32).zip(row.chunks_exact(34)) {
            let d = d(block);
            for (out, &q) in out.iter_mut().zip(&block[2..]) {
                *out = d * f32::from(q as i8);
            }
        }
        return;
    }
    for (out, block) in out.chunks_exact_mut(32).zip(row.chunks_exact(18)) {
        let d = d(block);
        let (low, high) = out.split_at_mut(16);
        for ((low, high), &q) in low.iter_mut().zip(high).zip(&block[2..]) {
            *low = d * f32::from((q & 15) as i8 - 8);
            *high = d * f32::from((q >> 4) as i8 - 8);
        }
    }
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
    fn blocks_read_back_as_their_codec_decodes_them() {
        for (kv, name) in [(KvType::Q8_0, "q8_0"), (KvType::Q4_0, "q4_0")] {
            for len in [16, 32, 80, 128] {
                let row = uniform(len as u64, len);
                let whole = len.next_multiple_of(32);
                let mut bytes = vec![0; kv.row_bytes(len)];
                let (mut fast, mut slow) = (vec![0.0; whole], vec![0.0; whole]);
                encode(kv, &row, &mut fast, &mut bytes);
                decode_blocks(kv, &bytes, &mut fast);
                nibble_quant::codec(name).decode_row(&bytes, &mut slow);
                assert_eq!(fast, slow);
                if kv == KvType::Q4_0 {
                    rotate(&mut fast[..len]);
                }
                let worst = fast.iter().zip(&row).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < if kv == KvType::Q8_0 { 0.01 } else { 0.5 }, "{kv} {len}: {worst}");
            }
        }
    }
}
