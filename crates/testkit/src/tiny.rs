//! Small model files with seeded weights, one of each kind, written in memory: the whole path without a download.
//!
//! All have width 256, heads of 64 numbers, feed-forward networks of 512 and a byte-level vocabulary of 320.

use crate::uniform;
use nibble_format::{
    Value,
    gguf::{Entry, WriteTensor, write_to},
};
use nibble_quant::{Codec, codec};

/// Tokens known: three specials, the bytes, the merges.
pub const VOCAB: usize = 320;
/// The token that starts a text.
pub const BOS: u32 = 0;
/// The token that ends one.
pub const EOS: u32 = 1;
/// The two tokens of U+1F600, each half a character.
pub const EMOJI: [u32; 2] = [FIRST_MERGE, FIRST_MERGE + 1];

const FIRST_BYTE: u32 = 3;
const FIRST_MERGE: u32 = FIRST_BYTE + 256;
const HIDDEN: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 64;
const FFN: usize = 512;
const BIGRAMS: &str = "th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se \
                       le sa si ar ve ra ld ur ma be co me no ro ne ch ll wa ee pe us oo ow fo la di wi ho";

/// A model file to be written.
#[derive(Clone, Debug)]
pub struct Tiny {
    /// What it is an example of.
    pub name: &'static str,
    architecture: &'static str,
    entries: Vec<Entry>,
    weights: Vec<Weight>,
}

#[derive(Clone, Debug)]
struct Weight {
    name: String,
    dims: Vec<usize>,
    numbers: Vec<f32>,
}

/// One of each kind: attention alone, recurrent layers among it, a window, experts.
pub fn all() -> [Tiny; 4] {
    [llama(), hybrid(), window(), experts()]
}

/// `llama`: two layers of attention.
pub fn llama() -> Tiny {
    let mut t = Tiny::new("llama", "llama", 2);
    for layer in 0..2 {
        t.attention(layer, HEADS * HEAD);
        t.ones(&format!("blk.{layer}.ffn_norm"), HIDDEN);
        t.dense(layer);
    }
    t
}

/// `qwen35`: a gated delta net before each of two layers of gated attention.
pub fn hybrid() -> Tiny {
    let (key_heads, heads, dim) = (2usize, 4usize, 32usize);
    let (keys, values) = (key_heads * dim, heads * dim);
    let mut t = Tiny::new("hybrid", "qwen35", 4);
    t.set("full_attention_interval", 2usize);
    t.set("ssm.conv_kernel", 4usize);
    t.set("ssm.state_size", dim);
    t.set("ssm.group_count", key_heads);
    t.set("ssm.time_step_rank", heads);
    t.set("ssm.inner_size", values);
    for layer in 0..4 {
        let name = |what: &str| format!("blk.{layer}.{what}");
        if layer % 2 == 0 {
            t.ones(&name("attn_norm"), HIDDEN);
            t.matrix(&name("attn_qkv"), &[2 * keys + values, HIDDEN], 1.0);
            t.matrix(&name("attn_gate"), &[values, HIDDEN], 1.0);
            t.matrix(&name("ssm_alpha"), &[heads, HIDDEN], 1.0);
            t.matrix(&name("ssm_beta"), &[heads, HIDDEN], 1.0);
            t.matrix(&name("ssm_conv1d"), &[2 * keys + values, 4], 1.0);
            t.add(name("ssm_dt.bias"), &[heads], vec![0.1; heads]);
            t.add(name("ssm_a"), &[heads], (0..heads).map(|h| -0.1 - 0.3 * h as f32).collect());
            t.ones(&name("ssm_norm"), dim);
            t.matrix(&name("ssm_out"), &[HIDDEN, values], 1.0);
        } else {
            t.attention(layer, 2 * HEADS * HEAD);
            t.ones(&name("attn_q_norm"), HEAD);
            t.ones(&name("attn_k_norm"), HEAD);
        }
        t.ones(&name("post_attention_norm"), HIDDEN);
        t.dense(layer);
    }
    t
}

/// `gemma2`: a layer that sees 8 positions, then one that sees all; norms on both sides, soft caps.
pub fn window() -> Tiny {
    let mut t = Tiny::new("window", "gemma2", 2);
    t.set("attention.sliding_window", 8usize);
    t.set("attn_logit_softcapping", 50.0);
    t.set("final_logit_softcapping", 30.0);
    for layer in 0..2 {
        let name = |what: &str| format!("blk.{layer}.{what}");
        t.attention(layer, HEADS * HEAD);
        for norm in ["post_attention_norm", "ffn_norm", "post_ffw_norm"] {
            t.ones(&name(norm), HIDDEN);
        }
        t.dense(layer);
    }
    // The model multiplies the embedding by 16, which would drown what its layers add.
    t.weight("token_embd.weight").numbers.iter_mut().for_each(|x| *x /= 16.0);
    t
}

/// `qwen3moe`: eight experts in each of two layers, two of them for each token.
pub fn experts() -> Tiny {
    let (count, ffn) = (8usize, 128usize);
    let mut t = Tiny::new("experts", "qwen3moe", 2);
    t.set("expert_count", count);
    t.set("expert_used_count", 2usize);
    t.set("expert_feed_forward_length", ffn);
    for layer in 0..2 {
        let name = |what: &str| format!("blk.{layer}.{what}");
        t.attention(layer, HEADS * HEAD);
        for (norm, width) in [("attn_q_norm", HEAD), ("attn_k_norm", HEAD), ("ffn_norm", HIDDEN)] {
            t.ones(&name(norm), width);
        }
        t.matrix(&name("ffn_gate_inp"), &[count, HIDDEN], 2.0);
        t.matrix(&name("ffn_gate_exps"), &[count, ffn, HIDDEN], 1.0);
        t.matrix(&name("ffn_up_exps"), &[count, ffn, HIDDEN], 1.0);
        t.matrix(&name("ffn_down_exps"), &[count, HIDDEN, ffn], 2.0);
    }
    t
}

/// A `llama` whose layers add nothing and that after each token of a chain always says the next one of it.
pub fn saying(chain: &[u32]) -> Tiny {
    let mut t = llama();
    t.name = "saying";
    for layer in 0..2 {
        t.weight(&format!("blk.{layer}.attn_output.weight")).numbers.fill(0.0);
        t.weight(&format!("blk.{layer}.ffn_down.weight")).numbers.fill(0.0);
    }
    let embed = t.weight("token_embd.weight").numbers.clone();
    let head = &mut t.weight("output.weight").numbers;
    head.fill(0.0);
    for pair in chain.windows(2) {
        let [from, to] = [pair[0], pair[1]].map(|token| token as usize * HIDDEN);
        head[to..to + HIDDEN].copy_from_slice(&embed[from..from + HIDDEN]);
    }
    t
}

/// The token of one byte.
pub fn byte(byte: u8) -> u32 {
    FIRST_BYTE + u32::from(byte)
}

/// `n` tokens that depend on the seed alone, none of them special.
pub fn prompt(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = crate::Rng::new(seed);
    (0..n).map(|_| FIRST_BYTE + rng.below(VOCAB - FIRST_BYTE as usize) as u32).collect()
}

impl Tiny {
    fn new(name: &'static str, architecture: &'static str, layers: usize) -> Self {
        let mut t = Self { name, architecture, entries: vec![], weights: vec![] };
        t.entries.push(Entry::new("general.architecture", architecture));
        t.set("block_count", layers);
        t.set("context_length", 4096usize);
        t.set("embedding_length", HIDDEN);
        t.set("feed_forward_length", FFN);
        t.set("attention.head_count", HEADS);
        t.set("attention.head_count_kv", KV_HEADS);
        t.set("attention.key_length", HEAD);
        t.set("attention.value_length", HEAD);
        t.set("attention.layer_norm_rms_epsilon", 1e-5);
        t.set("rope.freq_base", 10000.0);
        t.set("rope.dimension_count", HEAD);
        t.entries.extend(vocabulary());
        t.matrix("token_embd", &[VOCAB, HIDDEN], 16.0);
        t.ones("output_norm", HIDDEN);
        t.matrix("output", &[VOCAB, HIDDEN], 1.0);
        t
    }

    /// Sets a key of the architecture.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.set_key(&format!("{}.{key}", self.architecture), value);
    }

    /// Sets a key.
    pub fn set_key(&mut self, key: &str, value: impl Into<Value>) {
        self.entries.retain(|entry| entry.key != key);
        self.entries.push(Entry::new(key, value));
    }

    /// Leaves only the first `count` tokens in the vocabulary; the matrices keep their rows, as those of many models do.
    pub fn cut_vocabulary(&mut self, count: usize) {
        for entry in &mut self.entries {
            match (entry.key.as_str(), &mut entry.value) {
                ("tokenizer.ggml.tokens", Value::Texts(tokens)) => tokens.truncate(count),
                ("tokenizer.ggml.token_type", Value::Ints(types)) => types.truncate(count),
                ("tokenizer.ggml.merges", Value::Texts(merges)) => {
                    merges.truncate(count.saturating_sub(FIRST_MERGE as usize))
                }
                _ => {}
            }
        }
    }

    /// Replaces one number of a weight, named as in the file: damage to be found.
    pub fn damage(&mut self, weight: &str, at: usize, number: f32) {
        self.weight(weight).numbers[at] = number;
    }

    /// Names of its weights, and their dimensions.
    pub fn weights(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.weights.iter().map(|w| (w.name.as_str(), &w.dims[..]))
    }

    /// The file, all weights in f32.
    pub fn gguf(&self) -> Vec<u8> {
        self.gguf_in(codec("f32"))
    }

    /// The file, its matrices in an encoding that can be written and whose blocks divide 256.
    ///
    /// # Panics
    /// If the encoding cannot be written.
    pub fn gguf_in(&self, matrices: &'static dyn Codec) -> Vec<u8> {
        let tensors = self.weights.iter().map(|w| {
            let row = w.dims[w.dims.len() - 1];
            let fits = w.dims.len() > 1 && row.is_multiple_of(matrices.spec().block_len);
            let codec = if fits { matrices } else { codec("f32") };
            let spec = codec.spec();
            let mut bytes = vec![0; w.numbers.len() / spec.block_len * spec.block_bytes];
            let encoder = codec.encoder().expect("an encoding that can be written");
            for (row, out) in
                w.numbers.chunks(row).zip(bytes.chunks_mut(row / spec.block_len * spec.block_bytes))
            {
                encoder.encode_row(row, None, out);
            }
            WriteTensor::new(w.name.clone(), nibble_tensor::Shape::new(&w.dims).expect("small"), codec, bytes)
        });
        let mut file = vec![];
        write_to(&mut file, &self.entries, tensors.collect()).expect("a file in memory");
        file
    }

    fn weight(&mut self, name: &str) -> &mut Weight {
        self.weights.iter_mut().find(|w| w.name == name).expect("a weight of this model")
    }

    fn add(&mut self, name: String, dims: &[usize], numbers: Vec<f32>) {
        self.weights.push(Weight { name, dims: dims.to_vec(), numbers });
    }

    /// A weight whose products with unit numbers have a deviation of about `gain`.
    fn matrix(&mut self, name: &str, dims: &[usize], gain: f32) {
        let name = format!("{name}.weight");
        let seed = name.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        let scale = gain * (3.0 / dims[dims.len() - 1] as f32).sqrt();
        let numbers = uniform(seed, dims.iter().product()).iter().map(|x| x * scale).collect();
        self.add(name, dims, numbers);
    }

    fn ones(&mut self, name: &str, len: usize) {
        self.add(format!("{name}.weight"), &[len], vec![1.0; len]);
    }

    fn attention(&mut self, layer: usize, queries: usize) {
        let name = |what: &str| format!("blk.{layer}.{what}");
        self.ones(&name("attn_norm"), HIDDEN);
        self.matrix(&name("attn_q"), &[queries, HIDDEN], 1.0);
        self.matrix(&name("attn_k"), &[KV_HEADS * HEAD, HIDDEN], 1.0);
        self.matrix(&name("attn_v"), &[KV_HEADS * HEAD, HIDDEN], 1.0);
        self.matrix(&name("attn_output"), &[HIDDEN, HEADS * HEAD], 1.0);
    }

    fn dense(&mut self, layer: usize) {
        let name = |what: &str| format!("blk.{layer}.{what}");
        self.matrix(&name("ffn_gate"), &[FFN, HIDDEN], 1.0);
        self.matrix(&name("ffn_up"), &[FFN, HIDDEN], 1.0);
        self.matrix(&name("ffn_down"), &[HIDDEN, FFN], 2.0);
    }
}

/// The character that byte-level vocabularies write a byte as.
fn char_of(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).expect("below the surrogates")
}

fn vocabulary() -> Vec<Entry> {
    let text = |bytes: &[u8]| bytes.iter().map(|&b| char_of(b)).collect::<String>();
    let emoji = "\u{1F600}".as_bytes();
    let pairs: Vec<&[u8]> =
        [&emoji[..2], &emoji[2..]].into_iter().chain(BIGRAMS.split(' ').map(str::as_bytes)).collect();
    let mut tokens: Vec<String> = ["<s>", "</s>", "<pad>"].map(String::from).to_vec();
    tokens.extend((0..=255).map(|b| text(&[b])));
    tokens.extend(pairs.iter().map(|pair| text(pair)));
    assert_eq!(tokens.len(), VOCAB, "61 merges");
    let merges: Vec<String> = pairs.iter().map(|p| format!("{} {}", char_of(p[0]), char_of(p[1]))).collect();
    let types: Vec<i64> = (0..VOCAB).map(|id| if id < FIRST_BYTE as usize { 3 } else { 1 }).collect();
    vec![
        Entry::new("tokenizer.ggml.model", "gpt2"),
        Entry::new("tokenizer.ggml.pre", "default"),
        Entry::new("tokenizer.ggml.tokens", tokens),
        Entry::new("tokenizer.ggml.merges", merges),
        Entry::new("tokenizer.ggml.token_type", types),
        Entry::new("tokenizer.ggml.bos_token_id", BOS as usize),
        Entry::new("tokenizer.ggml.eos_token_id", EOS as usize),
        Entry::new("tokenizer.ggml.add_bos_token", true),
    ]
}
