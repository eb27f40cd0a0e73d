//! What planes would gain on the CPU: `cargo run --release -p nibble-backend-cpu --example layout -- [ROW_LEN] [MIB]`.
//!
//! One row of activations in 8 bits with 4-bit blocks as GGUF files have them (Q4_0: a half-precision scale, then 16 bytes
//! of codes, 18 bytes in all), and with the same codes in one plane, aligned, and their scales in another. Both loops run
//! the same instructions on what they loaded, 128 numbers at a time, of four rows far apart, and give the same bits; so only
//! loads differ. A bare loop that reads as many bytes runs in turns with them.

#[cfg(target_arch = "x86_64")]
mod x86 {
    use half::f16;
    use memmap2::MmapMut;
    use std::{arch::x86_64::*, hint::black_box, ops::Range, time::Instant};

    /// Numbers of a block, its bytes, and how many blocks go into one vector of codes.
    const LEN: usize = 32;
    const BLOCK: usize = 18;
    const BLOCKS: usize = 4;
    /// Rows at once.
    const STREAMS: usize = 4;
    const TAKES: usize = 25;

    struct Matrix {
        rows: usize,
        /// Vectors of codes in a row.
        steps: usize,
        interleaved: MmapMut,
        codes: MmapMut,
        scales: MmapMut,
        /// For each step the activations of low and high nibbles, and -8 times their sums where the products' sums lie.
        x: Vec<([i8; 64], [i8; 64], [i32; 16])>,
    }

    fn room(len: usize) -> MmapMut {
        let map = MmapMut::map_anon(len).expect("memory for the weights");
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        map
    }

    impl Matrix {
        fn new(rows: usize, row_len: usize) -> Self {
            let (steps, blocks) = (row_len / LEN / BLOCKS, rows * row_len / LEN);
            let mut state = 1u32;
            let mut random = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            let (mut interleaved, mut codes, mut scales) =
                (room(blocks * BLOCK), room(blocks * 16), room(blocks * 2));
            for (i, block) in interleaved.chunks_exact_mut(BLOCK).enumerate() {
                let scale = f16::from_f32(f32::from(random()) / 256.0).to_le_bytes();
                block[..2].copy_from_slice(&scale);
                block[2..].fill_with(&mut random);
                scales[2 * i..][..2].copy_from_slice(&scale);
                codes[16 * i..][..16].copy_from_slice(&block[2..]);
            }
            let mut x = || {
                let parts = [(); 2].map(|()| [(); 64].map(|()| random() as i8));
                let sum = |part: &[i8; 64], lane: usize| {
                    part[4 * lane..][..4].iter().map(|x| i32::from(*x)).sum::<i32>()
                };
                let sums = std::array::from_fn(|lane| -8 * (sum(&parts[0], lane) + sum(&parts[1], lane)));
                (parts[0], parts[1], sums)
            };
            let x = (0..steps).map(|_| x()).collect();
            Self { rows, steps, interleaved, codes, scales, x }
        }

        /// The products of some rows, summed.
        #[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
        fn rows<const PLANES: bool>(&self, rows: Range<usize>) -> f32 {
            let part = rows.len() / STREAMS;
            let mut total = 0.0;
            for row in rows.start..rows.start + part {
                let mut sums = [_mm512_setzero_ps(); STREAMS];
                for (step, (low, high, start)) in self.x.iter().enumerate() {
                    // SAFETY: each reads an array as long as the vector.
                    let (low, high, start) = unsafe {
                        (
                            _mm512_loadu_si512(low.as_ptr().cast()),
                            _mm512_loadu_si512(high.as_ptr().cast()),
                            _mm512_loadu_si512(start.as_ptr().cast()),
                        )
                    };
                    for (stream, sum) in sums.iter_mut().enumerate() {
                        let block = ((row + stream * part) * self.steps + step) * BLOCKS;
                        let (codes, scales) = if PLANES { self.planes(block) } else { self.blocks(block) };
                        let mask = _mm512_set1_epi8(15);
                        let products = _mm512_dpbusd_epi32(start, _mm512_and_si512(codes, mask), low);
                        let codes = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
                        let products = _mm512_dpbusd_epi32(products, codes, high);
                        // Lanes 0 to 3 are block 0, and so on.
                        let scales = _mm512_castps128_ps512(_mm_cvtph_ps(scales));
                        let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                        let scales = _mm512_permutexvar_ps(lanes, scales);
                        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scales, *sum);
                    }
                }
                total += sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum::<f32>();
            }
            total
        }

        /// Codes and scales of four blocks, from their planes.
        #[target_feature(enable = "avx512f,avx512vl")]
        #[inline]
        fn planes(&self, block: usize) -> (__m512i, __m128i) {
            let (codes, scales) = (&self.codes[16 * block..][..64], &self.scales[2 * block..][..8]);
            // SAFETY: the slices are as long as what is read.
            unsafe { (_mm512_loadu_si512(codes.as_ptr().cast()), _mm_loadl_epi64(scales.as_ptr().cast())) }
        }

        /// The same, from blocks one after the other.
        #[target_feature(enable = "avx512f,avx512vl")]
        #[inline]
        fn blocks(&self, block: usize) -> (__m512i, __m128i) {
            let bytes = &self.interleaved[BLOCK * block..][..BLOCKS * BLOCK];
            // SAFETY: the blocks are within the slice, and 16 bytes from the third on are within a block.
            let code = |i: usize| unsafe { _mm_loadu_si128(bytes[BLOCK * i + 2..].as_ptr().cast()) };
            let codes = _mm512_castsi128_si512(code(0));
            let codes = _mm512_inserti32x4::<1>(codes, code(1));
            let codes = _mm512_inserti32x4::<2>(codes, code(2));
            let codes = _mm512_inserti32x4::<3>(codes, code(3));
            let scale = |i: usize| i16::from_le_bytes([bytes[BLOCK * i], bytes[BLOCK * i + 1]]);
            (codes, _mm_setr_epi16(scale(0), scale(1), scale(2), scale(3), 0, 0, 0, 0))
        }

        /// Reads some of the interleaved bytes.
        #[target_feature(enable = "avx512f")]
        fn read(&self, bytes: Range<usize>) -> i64 {
            let part = bytes.len() / STREAMS / 64;
            let mut sums = [_mm512_setzero_si512(); STREAMS];
            for i in 0..part {
                for (stream, sum) in sums.iter_mut().enumerate() {
                    let bytes = &self.interleaved[bytes.start + 64 * (stream * part + i)..][..64];
                    // SAFETY: the slice is as long as the vector.
                    *sum = _mm512_xor_si512(*sum, unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) });
                }
            }
            sums.into_iter().map(|sum| _mm512_reduce_add_epi64(sum)).sum()
        }

        /// Seconds that all threads need for their part of `whole`.
        fn time(&self, threads: usize, whole: usize, work: impl Fn(Range<usize>) + Sync) -> f64 {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (work, cut) = (&work, |thread: usize| thread * whole / threads);
                    scope.spawn(move || work(cut(thread)..cut(thread + 1)));
                }
            });
            start.elapsed().as_secs_f64()
        }

        fn compare(&self, threads: usize) {
            let gb = self.interleaved.len() as f64 / 1e9;
            let mut takes = [const { Vec::new() }; 3];
            for _ in 0..TAKES {
                // SAFETY: `main` has found all that the three are compiled for.
                unsafe {
                    takes[0]
                        .push(self.time(threads, self.rows, |rows| _ = black_box(self.rows::<false>(rows))));
                    takes[1]
                        .push(self.time(threads, self.rows, |rows| _ = black_box(self.rows::<true>(rows))));
                    let bytes = self.interleaved.len();
                    takes[2].push(self.time(threads, bytes, |bytes| _ = black_box(self.read(bytes))));
                }
            }
            let mut ratios: Vec<f64> =
                takes[0].iter().zip(&takes[1]).map(|(blocks, planes)| blocks / planes).collect();
            let [blocks, planes, read] = takes.map(|mut times| {
                times.sort_by(f64::total_cmp);
                format!("{:5.1} (median {:.1})", gb / times[0], gb / times[TAKES / 2])
            });
            ratios.sort_by(f64::total_cmp);
            println!(
                "{threads} threads, GB/s: blocks {blocks}, planes {planes}, bare reads {read}; planes/blocks {:.3} [{:.3}, {:.3}]",
                ratios[TAKES / 2],
                ratios[TAKES / 4],
                ratios[TAKES * 3 / 4],
            );
        }
    }

    pub fn run(row_len: usize, mib: usize) {
        let found = is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma");
        assert!(found, "this processor has no AVX-512 with VNNI");
        assert!(row_len > 0 && row_len.is_multiple_of(LEN * BLOCKS), "rows of whole 128 numbers");
        let rows = (mib << 20) / (row_len / LEN * BLOCK) / 16 * 16;
        let matrix = Matrix::new(rows, row_len);
        // SAFETY: as above.
        let (blocks, planes) = unsafe { (matrix.rows::<false>(0..64), matrix.rows::<true>(0..64)) };
        assert!(blocks.to_bits() == planes.to_bits() && blocks != 0.0, "{blocks} and {planes}");
        println!("{rows} x {row_len}");
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        [1, all].into_iter().for_each(|threads| matrix.compare(threads));
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let (row_len, mib) = (args.next().unwrap_or(2048), args.next().unwrap_or(256));
    #[cfg(target_arch = "x86_64")]
    x86::run(row_len, mib);
    #[cfg(not(target_arch = "x86_64"))]
    println!("{row_len}, {mib}: measured on x86-64 alone");
}
