//! Products of trellises with activations of twelve bits: the contract is in the module above.

use super::Isa;
use super::matmul::{Fours, Job};
use nibble_quant::Codec;
use nibble_quant::exl3::{Exl3, TILE};

#[cfg(target_arch = "x86_64")]
use super::avx512;

/// A codec whose codes are integers of 16 bits.
#[derive(Clone, Copy)]
pub struct Trellis(&'static Exl3);

impl Trellis {
    /// The codec as one of the family, if it is one.
    pub fn of(codec: &dyn Codec) -> Option<Self> {
        Exl3::of(codec).map(Self)
    }

    /// Computes every output of a job. `panel` has room for sixteen rows of codes.
    pub fn product(self, isa: Isa, job: &Job<'_>, panel: &mut [Fours]) {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(proof) if proof.has_vbmi() => {
                // SAFETY: the value of `isa` proves that the instructions were detected.
                unsafe { avx512::trellis::product(self.0, proof.has_fp16(), job, panel) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) | Isa::Avx2(_) => {
                // SAFETY: as above.
                unsafe { product_avx2(self.0, job) }
            }
            _ => product(self.0, job),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn product_avx2(codec: &Exl3, job: &Job<'_>) {
    product(codec, job);
}

/// Rows of activations that are multiplied with codes at once.
const AT_ONCE: usize = 8;

/// The twin of all kernels; the same operations on every processor.
#[inline(always)]
fn product(codec: &Exl3, job: &Job<'_>) {
    let codes = codec.book.codes();
    let (scale, offset) = codec.book.scale_and_offset();
    let block_bytes = codec.spec().block_bytes;
    for n in job.first..job.end {
        let strip = job.row(n / TILE);
        for first in (0..job.x.count()).step_by(AT_ONCE) {
            let count = AT_ONCE.min(job.x.count() - first);
            let x: [_; AT_ONCE] = std::array::from_fn(|i| job.x.row(first + i.min(count - 1)));
            let mut acc = [0.0; AT_ONCE];
            for (group, blocks) in strip.chunks(2 * block_bytes).enumerate() {
                let mut w = [0; 2 * TILE];
                for (w, block) in w.chunks_exact_mut(TILE).zip(blocks.chunks_exact(block_bytes)) {
                    w.copy_from_slice(&codec.look_up(block, n % TILE, codes));
                }
                for (acc, x) in acc.iter_mut().zip(&x).take(count) {
                    let products = w.iter().zip(&x.wide[group].0).map(|(&w, &x)| i32::from(w) * i32::from(x));
                    *acc = (products.sum::<i32>() as f32).mul_add(x.wide_scales[group], *acc);
                }
            }
            for (i, acc) in acc.into_iter().enumerate().take(count) {
                let all = x[i].wide_scales.last().copied().unwrap_or(0.0);
                job.y.write(first + i, n, &[offset.mul_add(all, scale * acc)]);
            }
        }
    }
}
