//! Directories of every kind that are right (those of `golden`), and a rotated GGUF file, with changes that the bytes
//! choose: tensors that are gone, renamed, of another type or shape, or with other numbers; settings of another value.
//! Unlike in `directory`, most of a model stays whole, so that changes are met deep inside. Whatever opens is decoded to
//! the last row and built into a graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nibble_format::{Checkpoint, safetensors::SafetensorsFile};
use nibble_quant::Registry;
use nibble_testkit::{
    gguf::Builder,
    golden,
    pack::{Tensor, safetensors},
    workspace_root,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// What the bytes choose next; 0 once they are spent.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, n: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n.max(1)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// A directory that is right.
struct Directory {
    config: Value,
    tensors: Vec<Tensor>,
}

static DIRECTORIES: LazyLock<Vec<Directory>> = LazyLock::new(|| {
    let models = ["bitnet-auto", "bitnet-linear", "gpt-oss"]
        .map(|name| workspace_root().join("golden/models").join(name));
    golden::containers().iter().chain(&models).map(|path| read(path)).collect()
});

fn read(path: &Path) -> Directory {
    let weights = path.join("model.safetensors");
    let file = SafetensorsFile::parse(fs::read(&weights).expect("ours").into(), &weights).expect("ours");
    let tensor = |(name, info): (&String, &nibble_format::safetensors::TensorInfo)| {
        Tensor::new(name, &info.dtype, &info.shape, file.raw(info).to_vec())
    };
    let config = serde_json::from_slice(&fs::read(path.join("config.json")).expect("ours")).expect("JSON");
    Directory { config, tensors: file.tensors.iter().map(tensor).collect() }
}

/// Bytes of a number.
fn width(dtype: &str) -> usize {
    match dtype {
        "I64" => 8,
        "I32" | "U32" | "F32" => 4,
        "I16" | "F16" | "BF16" => 2,
        _ => 1,
    }
}

const DTYPES: [&str; 12] =
    ["BF16", "F16", "F32", "U8", "I8", "U32", "I32", "I16", "I64", "F8_E4M3", "F8_E5M2", "F8_E8M0"];

fn change(tensors: &mut Vec<Tensor>, next: &mut Choices<'_>) {
    if tensors.is_empty() {
        return;
    }
    let i = next.below(tensors.len());
    match next.byte() % 7 {
        0 => drop(tensors.remove(i)),
        1 => {
            let j = next.below(tensors.len());
            let name = tensors[j].name.clone();
            tensors[j].name = std::mem::replace(&mut tensors[i].name, name);
        }
        2 => {
            // As many bytes, read as something else.
            let dtype = next.one(&DTYPES);
            let (old, new) = (width(&tensors[i].dtype), width(dtype));
            tensors[i].dtype = dtype.into();
            if let Some(last) = tensors[i].dims.last_mut().filter(|last| (**last * old).is_multiple_of(new)) {
                *last = *last * old / new;
            }
        }
        3 => tensors[i].dims.reverse(),
        4 => {
            let dims = &mut tensors[i].dims;
            match dims[..] {
                [n] => *dims = vec![2, n / 2],
                [a, b] => *dims = vec![a * b],
                [a, ref rest @ ..] => *dims = [&[a * rest[0]], &rest[1..]].concat(),
                [] => {}
            }
        }
        5 => {
            let n = next.one(&[0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64, 96, 128, 256]);
            let t = &mut tensors[i];
            let at = next.below(t.dims.len());
            if let Some(dim) = t.dims.get_mut(at) {
                *dim = n;
            }
            let len = t.dims.iter().product::<usize>() * width(&t.dtype);
            t.bytes.resize(len.min(1 << 20), next.byte());
        }
        _ => {
            let bytes = &mut tensors[i].bytes;
            for _ in 0..next.byte() % 16 {
                let at = next.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = next.byte();
                }
            }
        }
    }
}

/// Replaces or removes a setting, at any depth.
fn change_setting(config: &mut Value, next: &mut Choices<'_>) {
    let values = [
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(5),
        json!(8),
        json!(16),
        json!(33),
        json!(64),
        json!(256),
        json!(-1),
        json!(1u64 << 40),
        json!(0.5),
        json!("gemm"),
        json!(true),
        json!(false),
        json!(null),
        json!([]),
        json!({}),
        json!("mxfp4"),
        json!("gptq"),
        json!("exl3"),
        json!("compressed-tensors"),
        json!("gptq_v2"),
        json!("bitlinear"),
    ];
    let Some(map) = config.as_object_mut().filter(|map| !map.is_empty()) else { return };
    let at = next.below(map.len());
    let key = map.keys().nth(at).expect("within").clone();
    if map[&key].is_object() && next.byte() % 4 > 0 {
        return change_setting(&mut map[&key], next);
    }
    match next.byte() % 4 {
        0 => drop(map.remove(&key)),
        _ => drop(map.insert(key, next.one(&values))),
    }
}

/// A llama of one layer with Prism's keys, some of them changed.
fn rotated(next: &mut Choices<'_>) -> Vec<u8> {
    let mut b = Builder::llama();
    for (key, n) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 64),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 32),
    ] {
        b.u32(&format!("llama.{key}"), if next.byte() == 1 { next.byte().into() } else { n });
    }
    b.entry(b"llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
    let odd = |next: &mut Choices<'_>| next.byte() % 16 == 1;
    let key = |name: &str| format!("prism.hadamard.{name}");
    let version = if odd(next) { next.byte().into() } else { 1 + u32::from(next.byte() & 1) };
    b.u32(&key("version"), version);
    b.u32(&key("block_size"), if odd(next) { next.byte().into() } else { 32 });
    if !odd(next) {
        b.text(&key("transform"), "normalized-sylvester-walsh-hadamard");
    }
    b.text(&key("axis"), if odd(next) { "" } else { "input-last-dimension" });
    b.text(&key("sign_mode"), next.one(&["explicit", "identity", "explicit", "explicit", "x"]));
    let width = next.one(&[64i32, 64, 64, 32, 0, -64, 96]);
    let count = next.one(&[64usize, 64, 64, 32, 0, 128]);
    let signs: Vec<u8> =
        (0..count).flat_map(|_| (if next.byte() & 1 == 0 { 1i32 } else { -1 }).to_le_bytes()).collect();
    b.list(&key("sign_widths"), 5, 1, &width.to_le_bytes());
    b.list(&key("sign_values"), 5, count as u64, &signs);
    let names = [
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
        "attn_norm",
        "ssm_out",
    ];
    let listed: Vec<Vec<u8>> = names
        .iter()
        .take(next.below(10))
        .map(|name| b.string(format!("blk.0.{name}.weight").as_bytes()))
        .collect();
    b.list(&key("weight_names"), 8, listed.len() as u64, &listed.concat());
    if version == 2 && !odd(next) || odd(next) {
        let embed = b.string(b"token_embd.weight");
        b.list(&key("inverse_weight_names"), 8, 1, &embed);
        b.entry(key("tied_output").as_bytes(), 7, &[1]);
    }
    for name in
        names.iter().take(7).map(|name| format!("blk.0.{name}.weight")).chain(["token_embd.weight".into()])
    {
        let dims = if odd(next) { [u64::from(next.byte()), 64] } else { [64, 64] };
        b.tensor(&name, &dims, 1, &vec![next.byte(); (dims[0] * dims[1] * 2) as usize]);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        b.tensor(name, &[64], 1, &[0; 128]);
    }
    b.build()
}

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("nibble-fuzz-packed-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a folder for temporary files");
    path
});

fn opened(next: &mut Choices<'_>) -> Option<Checkpoint> {
    let kind = usize::from(next.byte()) % (DIRECTORIES.len() + 2);
    let Some(directory) = DIRECTORIES.get(kind) else {
        return nibble_format::open_bytes(rotated(next).into(), "fuzz", &Registry::default()).ok();
    };
    let (mut config, mut tensors) = (directory.config.clone(), directory.tensors.clone());
    for _ in 0..next.byte() % 4 {
        change(&mut tensors, next);
    }
    for _ in 0..next.byte() % 3 {
        change_setting(&mut config, next);
    }
    fs::write(FOLDER.join("config.json"), config.to_string()).expect("a temporary file");
    fs::write(FOLDER.join("model.safetensors"), safetensors(&tensors)).expect("a temporary file");
    nibble_format::open(&FOLDER, &Registry::default()).ok()
}

fuzz_target!(|data: &[u8]| {
    let Some(checkpoint) = opened(&mut Choices(data.iter())) else { return };
    for tensor in checkpoint.tensors.values().filter(|tensor| tensor.shape().elements() > 0) {
        tensor.decode();
    }
    let _ = nibble_model::build(&checkpoint);
});
