//! Random numbers by counting: number n of a seed is a hash of both, so there is no state to save.

/// Number `n` of `seed`, uniform in [0, 1), with 53 bits.
///
/// Two rounds of the SplitMix64 mixer (Steele, Lea and Flood 2014) over the seed and the counter.
pub fn uniform(seed: u64, n: u64) -> f64 {
    (bits(before(seed, n)) >> 11) as f64 / (1u64 << 53) as f64
}

/// What [`bits`] makes number `n` of `seed` from; that of number `n + 1` is [`GOLDEN`] more.
pub fn before(seed: u64, n: u64) -> u64 {
    bits(seed.wrapping_add(GOLDEN)).wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN))
}

/// 2^64 over the golden ratio, made odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixer.
pub fn bits(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::uniform;

    #[test]
    fn numbers_are_uniform_and_differ_by_seed_and_place() {
        for seed in [0, 1, 2, u64::MAX] {
            let mut counts = [0u32; 16];
            let mut sum = 0.0;
            for n in 0..16_000 {
                let u = uniform(seed, n);
                assert!((0.0..1.0).contains(&u));
                counts[(u * 16.0) as usize] += 1;
                sum += u;
            }
            // Standard deviations are 31 counts and 0.0023.
            assert!(counts.iter().all(|&c| (840..1160).contains(&c)), "{seed}: {counts:?}");
            assert!((sum / 16_000.0 - 0.5).abs() < 0.012, "{seed}");
        }
        assert_ne!(uniform(1, 0), uniform(2, 0));
        assert_ne!(uniform(1, 0), uniform(1, 1));
        assert_ne!(uniform(0, 1), uniform(1, 0));
    }

    #[test]
    fn neighbouring_seeds_are_not_correlated() {
        let n = 4000;
        for (a, b, shift) in [(1, 2, 0), (7, 8, 0), (1, 2, 1), (0, u64::MAX, 0)] {
            let products = (0..n).map(|i| (uniform(a, i) - 0.5) * (uniform(b, i + shift) - 0.5)).sum::<f64>();
            let correlation = products / n as f64 * 12.0;
            assert!(correlation.abs() < 0.08, "{a} {b}: {correlation}"); // five standard deviations
        }
    }

    #[test]
    fn numbers_stay_the_same_forever() {
        // By the same formula in Python's unbounded integers.
        assert_eq!(uniform(1, 0).to_bits(), 0x3fd7_906a_c21d_0e58);
        assert_eq!(uniform(42, 1000).to_bits(), 0x3fe6_3f91_9049_aa49);
    }
}
