//! Matrices of EXL3's tiles, and layers of them.

use nibble_graph::{
    Activation, Attention, Frequencies, Graph, KvLayer, Linear, Rope, RopeLayout, Rotation, Weight,
};
use nibble_quant::{
    Codec, Encoded, codec,
    exl3::{Codebook, Exl3},
};
use nibble_tensor::Shape;
use nibble_testkit::{Rng, ops::rows, uniform};

/// A matrix of tiles of random bits.
pub fn tiles(name: &str, codec: &'static Exl3, [n, k]: [usize; 2], seed: u64) -> Weight {
    let mut rng = Rng::new(seed);
    let bytes = codec.spec().block_bytes;
    let mut blocks = vec![0; n * k / 256 * bytes];
    for block in blocks.chunks_exact_mut(bytes) {
        let tile: Vec<u8> = (0..32 * codec.bits).map(|_| rng.bits() as u8).collect();
        codec.put(&tile, block);
    }
    Weight::new(name, Encoded::new(name, Shape::from([n, k]), codec, blocks.into()).unwrap())
}

/// A matrix of tiles in a basis of its own.
fn rotated(name: &str, codec: &'static Exl3, shape: [usize; 2], seed: u64) -> Linear {
    let rotation = |end: &str, len: usize| {
        let signs: Vec<f32> = uniform(seed, len).iter().map(|x| (x + 0.5).copysign(*x) / 8.0).collect();
        let name = format!("{name} {end}");
        let gain = Encoded::encode(&name, Shape::from([len]), nibble_quant::codec("f32"), &signs, None);
        Some(Rotation { gain: Weight::new(&name, gain.unwrap()), block: 128 })
    };
    Linear {
        rotate: rotation("signs", shape[1]),
        parts: vec![tiles(name, codec, shape, seed)],
        unrotate: rotation("signs after", shape[0]),
        ..Linear::default()
    }
}

/// One product of random rows.
pub fn product() -> Graph {
    let mut g = Graph::default();
    let x = rows(&mut g, "x", 128).unwrap();
    let y = g.linear(x, rotated("w", Exl3::find(4, Codebook::Mcg).unwrap(), [256, 128], 1)).unwrap();
    g.output(y);
    g
}

/// Layers as those of a llama, with biases of keys, and a head for wanted rows; `normed`: heads are normed, and what a layer adds
/// is too.
pub fn layers(count: usize, hidden: usize, normed: bool) -> Graph {
    const WIDTH: usize = 128;
    let kind = Exl3::find(4, Codebook::Mcg).unwrap();
    let mut g = Graph::default();
    let sized = |name: &str, seed: u64, len: usize| {
        let numbers: Vec<f32> = uniform(seed, len).iter().map(|x| 1.0 + x / 4.0).collect();
        Weight::new(name, Encoded::encode(name, Shape::from([len]), codec("f32"), &numbers, None).unwrap())
    };
    let vector = |name: &str, seed: u64| sized(name, seed, WIDTH);
    let frequencies = Frequencies::Fixed((0..32).map(|i| 0.7f32.powi(i)).collect());
    let rope = Rope { head_dim: 64, dims: 64, layout: RopeLayout::Split, frequencies, magnitude: 1.0 };
    let mut seed = 0;
    let mut linear = |g: &mut Graph, name: &str, x, shape| {
        seed += 1;
        g.linear(x, rotated(name, kind, shape, seed)).unwrap()
    };
    let mut x = rows(&mut g, "x", WIDTH).unwrap();
    for layer in 0..count {
        let of = |name: &str| format!("{layer}.{name}");
        let h = g.rms_norm(x, vector(&of("norm"), 31), 1e-5).unwrap();
        let q = linear(&mut g, &of("q"), h, [2 * WIDTH, WIDTH]);
        let k = linear(&mut g, &of("k"), h, [WIDTH, WIDTH]);
        let k = g.bias(k, vector(&of("k.bias"), 32)).unwrap();
        let v = linear(&mut g, &of("v"), h, [WIDTH, WIDTH]);
        let [q, k] = [(q, "q.norm"), (k, "k.norm")].map(|(x, name)| match normed {
            true => g.rms_norm(x, sized(&of(name), 35, 64), 1e-5).unwrap(),
            false => x,
        });
        let (q, k) = (g.rope(q, rope.clone()).unwrap(), g.rope(k, rope.clone()).unwrap());
        let cache = g.add_cache(KvLayer { kv_heads: 2, key_dim: 64, value_dim: 64 });
        let attention = Attention { cache, heads: 4, scale: 0.01, window: None, soft_cap: None };
        let h = g.attention(q, k, v, attention).unwrap();
        let h = linear(&mut g, &of("o"), h, [WIDTH, 2 * WIDTH]);
        let h = if normed { g.rms_norm(h, vector(&of("norm behind"), 36), 1e-5).unwrap() } else { h };
        x = g.add(x, h).unwrap();
        let h = g.rms_norm(x, vector(&of("norm 2"), 33), 1e-5).unwrap();
        let gate = linear(&mut g, &of("gate"), h, [hidden, WIDTH]);
        let up = linear(&mut g, &of("up"), h, [hidden, WIDTH]);
        let h = g.gated(Activation::Silu, gate, up).unwrap();
        let h = linear(&mut g, &of("down"), h, [WIDTH, hidden]);
        let h = if normed { g.rms_norm(h, vector(&of("norm behind 2"), 36), 1e-5).unwrap() } else { h };
        x = g.add(x, h).unwrap();
    }
    let h = g.wanted(x).unwrap();
    let h = g.rms_norm(h, vector("norm", 34), 1e-5).unwrap();
    let y = linear(&mut g, "head", h, [3 * WIDTH, WIDTH]);
    g.output(y);
    g
}
