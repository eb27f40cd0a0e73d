//! GGUF files: every tensor type, BitNet's and PrismML's among them.

use super::{grids, ternary::ternary, *};
use crate::gguf::Builder;
use nibble_quant::{Codec, Registry};

/// Tensor type of BitNet's `i2_s`.
const I2_S: u32 = 36;

/// Names of the tensors of a layer.
const NAMES: [(&str, &str); 9] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

/// `model.layers.3.mlp.up_proj` -> `blk.3.ffn_up`
fn name(module: &str) -> String {
    match module {
        "model.embed_tokens" => "token_embd".into(),
        "model.norm" => "output_norm".into(),
        _ => {
            let (layer, inner) = module["model.layers.".len()..].split_once('.').expect("a layer");
            let (_, own) = NAMES.iter().find(|(hf, _)| *hf == inner).expect("a known tensor");
            format!("blk.{layer}.{own}")
        }
    }
}

/// The matrices in their files' names and order of rows: those of queries and keys are turned for interleaved rotation.
fn matrices(plain: &Plain) -> Vec<Matrix> {
    let dim = plain.config["head_dim"].as_u64().expect("a number") as usize;
    let own = |m: &Matrix| {
        let turns = m.name.ends_with("q_proj") || m.name.ends_with("k_proj");
        let from = |row: usize| row / dim * dim + row % 2 * dim / 2 + row % dim / 2;
        let rows = (0..m.rows).flat_map(|row| m.row(if turns { from(row) } else { row }));
        Matrix { name: name(&m.name), numbers: rows.copied().collect(), ..*m }
    };
    plain.matrices.iter().map(own).collect()
}

/// A file with its keys and vectors.
fn start(plain: &Plain) -> Builder {
    let mut b = Builder::llama();
    for (key, from) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("rope.dimension_count", "head_dim"),
    ] {
        b.u32(&format!("llama.{key}"), plain.config[from].as_u64().expect("a number") as u32);
    }
    for (key, from) in
        [("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")]
    {
        let number = plain.config[from].as_f64().expect("a number") as f32;
        b.entry(format!("llama.{key}").as_bytes(), 6, &number.to_le_bytes());
    }
    b
}

fn vectors(plain: &Plain, b: &mut Builder) {
    for (vector, numbers) in &plain.vectors {
        let module = vector.strip_suffix(".weight").expect("a weight");
        b.tensor(&format!("{}.weight", name(module)), &[numbers.len() as u64], 0, &f32s(numbers));
    }
}

/// The file in which `encode` says type and bytes of each matrix.
fn file(
    plain: &Plain,
    mut b: Builder,
    matrices: &[Matrix],
    encode: impl Fn(&Matrix) -> (u32, Vec<u8>),
) -> Written {
    vectors(plain, &mut b);
    for m in matrices {
        let (id, bytes) = encode(m);
        b.tensor(&format!("{}.weight", m.name), &[m.columns as u64, m.rows as u64], id, &bytes);
    }
    Written::File(b.build())
}

/// Writes the numbers of matrices.
type Encoder = Box<dyn Fn(&Matrix) -> Vec<u8>>;

/// What writes them in a codec.
fn encoder(codec: &'static dyn Codec) -> Encoder {
    let spec = codec.spec();
    let room = |m: &Matrix| vec![0; m.numbers.len() / spec.block_len * spec.block_bytes];
    if let Some((len, encode)) = grids::encoder(spec.name) {
        return Box::new(move |m| {
            let mut out = room(m);
            let blocks = m.numbers.chunks_exact(len).zip(out.chunks_exact_mut(spec.block_bytes));
            blocks.for_each(|(numbers, block)| encode(numbers, block));
            out
        });
    }
    let encoder = codec.encoder().expect("an encoder for every type");
    Box::new(move |m| {
        let mut out = room(m);
        let row_bytes = out.len() / m.rows;
        let rows = m.numbers.chunks_exact(m.columns).zip(out.chunks_exact_mut(row_bytes));
        rows.for_each(|(row, out)| encoder.encode_row(row, None, out));
        out
    })
}

/// The file with all matrices in a codec, under a tensor type.
fn all_in(plain: &Plain, b: Builder, matrices: &[Matrix], codec: &'static dyn Codec, id: u32) -> Written {
    let encode = encoder(codec);
    file(plain, b, matrices, |m| (id, encode(m)))
}

/// Whole tensors in 128/32 order, their factor behind them; the embedding in F16.
fn i2_s(plain: &Plain) -> Written {
    file(plain, start(plain), &matrices(plain), |m| {
        if m.name == "token_embd" {
            return (1, f16s(&m.numbers));
        }
        let (numbers, mean) = ternary(m);
        let mut bytes = vec![0u8; numbers.len() / 4];
        for (block, numbers) in bytes.chunks_exact_mut(32).zip(numbers.chunks_exact(128)) {
            for (i, number) in numbers.iter().enumerate() {
                block[i % 32] |= ((number + 1) as u8) << (6 - 2 * (i / 32));
            }
        }
        bytes.extend(mean.to_le_bytes());
        bytes.resize(numbers.len() / 4 + 32, 0);
        (I2_S, bytes)
    })
}

/// The file whose matrices are of a type of BitNet's tables, with a factor beside each; the embedding in F16.
pub(super) fn tables(plain: &Plain, id: u32, pack: impl Fn(&Matrix, &[i8]) -> Vec<u8>) -> Vec<u8> {
    let mut b = start(plain);
    vectors(plain, &mut b);
    for m in matrices(plain) {
        let (name, dims) = (format!("{}.weight", m.name), [m.columns as u64, m.rows as u64]);
        if m.name == "token_embd" {
            b.tensor(&name, &dims, 1, &f16s(&m.numbers));
            continue;
        }
        let (numbers, mean) = ternary(&m);
        b.tensor(&name, &dims, id, &pack(&m, &numbers));
        b.tensor(&format!("{name}_scale"), &[1], 0, &mean.to_le_bytes());
    }
    b.build()
}

/// Matrices that Prism's transform has rotated, in blocks of 256; with signs, in version 2, the embedding too.
fn rotated(plain: &Plain, codec: &'static dyn Codec, signed: bool) -> Written {
    const BLOCK: usize = 256;
    let mut matrices = matrices(plain);
    let folded = |m: &Matrix| signed || m.name != "token_embd";
    for m in matrices.iter_mut().filter(|m| folded(m)) {
        let signs = if signed { signs(m.columns) } else { vec![1.0; m.columns] };
        for row in m.numbers.chunks_exact_mut(m.columns) {
            row.iter_mut().zip(&signs).for_each(|(x, sign)| *x *= sign);
        }
        hadamard(&mut m.numbers, BLOCK);
    }
    let mut b = start(plain);
    b.u32("prism.hadamard.version", if signed { 2 } else { 1 });
    b.u32("prism.hadamard.block_size", BLOCK as u32);
    b.text("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    b.text("prism.hadamard.axis", "input-last-dimension");
    b.text("prism.hadamard.sign_mode", if signed { "explicit" } else { "identity" });
    let widths = [256, 768];
    if signed {
        b.list("prism.hadamard.sign_widths", 5, 2, &i32s(widths));
        let values: Vec<u8> =
            widths.iter().flat_map(|&w| signs(w)).flat_map(|s| (s as i32).to_le_bytes()).collect();
        b.list("prism.hadamard.sign_values", 5, widths.iter().sum::<usize>() as u64, &values);
        let embed = b.string(b"token_embd.weight");
        b.list("prism.hadamard.inverse_weight_names", 8, 1, &embed);
        b.entry(b"prism.hadamard.tied_output", 7, &[1]);
    }
    let names: Vec<_> = matrices.iter().map(|m| &m.name).filter(|name| *name != "token_embd").collect();
    let listed: Vec<u8> =
        names.iter().flat_map(|name| b.string(format!("{name}.weight").as_bytes())).collect();
    b.list("prism.hadamard.weight_names", 8, names.len() as u64, &listed);
    all_in(plain, b, &matrices, codec, codec.spec().gguf.expect("a type"))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for codec in Registry::default().iter() {
        let spec = codec.spec();
        let Some(id) = spec.gguf.filter(|&id| id != I2_S) else { continue };
        cases.push(Case::new(format!("gguf-{}", spec.name), move |p| {
            all_in(p, start(p), &matrices(p), codec, id)
        }));
    }
    cases.push(Case::new("gguf-i2_s", i2_s));
    let codec = nibble_quant::codec;
    // PrismML's first files, which say type 42.
    cases
        .push(Case::new("gguf-prism-legacy", move |p| all_in(p, start(p), &matrices(p), codec("pq2_0"), 42)));
    cases.push(Case::new("gguf-prism-ptq1_0", move |p| rotated(p, codec("ptq1_0"), false)));
    cases.push(Case::new("gguf-prism-pq2_0", move |p| rotated(p, codec("pq2_0"), true)));
    cases.push(Case::new("gguf-prism-q8_0", move |p| rotated(p, codec("q8_0"), true)));
    cases
}
