//! What keeping keys and values in fewer bits does to them.

use half::f16;
use nibble_backend::KvType;
use nibble_quant::{Codec, codec};

/// Replaces keys or values by what is read back when they are kept as `kv`; `row` is whole heads of `head_dim`.
///
/// Blocks of 32 run along each head, a last shorter one filled up with zeros. For `q4_0` each head is turned by
/// [`hadamard`] before it is rounded and turned back after: outliers spread over the head, and as the transform is
/// orthogonal, a backend may as well turn queries and results instead of what it reads.
pub fn round_kv(kv: KvType, head_dim: usize, row: &mut [f32]) {
    match kv {
        KvType::F32 => {}
        KvType::F16 => row.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        KvType::Q8_0 => row.chunks_exact_mut(head_dim).for_each(|head| round_blocks(codec("q8_0"), head)),
        KvType::Q4_0 => {
            for head in row.chunks_exact_mut(head_dim) {
                hadamard(head);
                round_blocks(codec("q4_0"), head);
                hadamard(head);
            }
        }
    }
}

fn round_blocks(codec: &dyn Codec, head: &mut [f32]) {
    let spec = codec.spec();
    let encoder = codec.encoder().expect("the codecs of keys and values encode");
    let mut bytes = vec![0; spec.block_bytes];
    let mut block = vec![0.0; spec.block_len];
    for part in head.chunks_mut(spec.block_len) {
        block.fill(0.0);
        block[..part.len()].copy_from_slice(part);
        encoder.encode_row(&block, None, &mut bytes);
        codec.decode(&bytes, &mut block);
        part.copy_from_slice(&block[..part.len()]);
    }
}

/// The Walsh-Hadamard transform of each block of a head, divided by the root of its length, in place.
///
/// A block is the longest power of two that fits, then the rest is cut alike: 128 of 128, 64 and 16 of 80. The transform is its
/// own inverse.
pub fn hadamard(mut head: &mut [f32]) {
    while !head.is_empty() {
        let len = 1 << head.len().ilog2();
        let (block, rest) = head.split_at_mut(len);
        head = rest;
        let mut half = 1;
        while half < len {
            for pair in block.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        let scale = (len as f32).sqrt().recip();
        block.iter_mut().for_each(|x| *x *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hadamard_is_its_own_inverse_and_keeps_lengths() {
        for len in [1, 2, 16, 64, 80, 96, 128] {
            let x = nibble_testkit::uniform(len as u64, len);
            let mut y = x.clone();
            hadamard(&mut y);
            let square = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>();
            assert!((square(&x) - square(&y)).abs() < 1e-4, "{len}");
            hadamard(&mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-5), "{len}");
        }
    }

    #[test]
    fn rounding_error_falls_with_the_bits_and_outliers_do_not_drown_a_head() {
        let mut x = nibble_testkit::uniform(7, 2 * 64);
        x[5] = 40.0;
        let mut last = 0.0;
        for (name, kv) in KvType::ALL {
            let mut y = x.clone();
            round_kv(kv, 64, &mut y);
            let error = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
            assert!(error >= last && (error > 0.0) == (kv != KvType::F32), "{name}: {error}");
            last = error;
        }
        // Without the transform the block of the outlier has steps of 5 and every other number becomes 0.
        assert!(last < 1.0, "{last}");
    }

    #[test]
    fn a_head_that_is_no_whole_block_is_rounded_too() {
        for (name, kv) in KvType::ALL {
            let x = nibble_testkit::uniform(3, 2 * 48);
            let mut y = x.clone();
            round_kv(kv, 48, &mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 0.2), "{name}");
        }
    }
}
