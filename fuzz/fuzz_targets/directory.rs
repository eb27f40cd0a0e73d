//! A directory of every kind that packs matrices: the bytes choose the kind, its settings, and the types, shapes and
//! contents of its tensors. Whatever opens is decoded to the last row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nibble_quant::Registry;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Kinds, and the endings and types of the tensors of one of their matrices.
const KINDS: &[(&str, &[(&str, &str)])] = &[
    ("mlx", &[(".weight", "U32"), (".scales", "F16"), (".biases", "F16")]),
    ("mlx", &[(".weight", "U32"), (".scales", "U8")]),
    ("gptq", &[(".qweight", "I32"), (".qzeros", "I32"), (".scales", "F16"), (".g_idx", "I32")]),
    ("awq", &[(".qweight", "I32"), (".qzeros", "I32"), (".scales", "BF16")]),
    (
        "compressed-tensors",
        &[
            (".weight_packed", "I32"),
            (".weight_scale", "F16"),
            (".weight_shape", "I64"),
            (".weight_zero_point", "I32"),
            (".weight_g_idx", "I32"),
        ],
    ),
    ("compressed-tensors", &[(".weight", "I8"), (".weight_scale", "F32")]),
    (
        "compressed-tensors",
        &[(".weight_packed", "U8"), (".weight_scale", "F8_E4M3"), (".weight_global_scale", "F32")],
    ),
    ("fp8", &[(".weight", "F8_E4M3"), (".weight_scale_inv", "F32")]),
    ("fp8", &[(".weight", "F8_E5M2"), (".weight_scale", "F32")]),
    ("bitnet", &[(".weight", "U8"), (".weight_scale", "BF16")]),
    ("modelopt", &[(".weight", "U8"), (".weight_scale", "F8_E4M3"), (".weight_scale_2", "F32")]),
    ("mxfp4", &[("_blocks", "U8"), ("_scales", "U8")]),
    (
        "exl2",
        &[
            (".q_weight", "I32"),
            (".q_groups", "I16"),
            (".q_scale", "I32"),
            (".q_scale_max", "F16"),
            (".q_invperm", "I32"),
        ],
    ),
    ("exl3", &[(".trellis", "I16"), (".suh", "F16"), (".svh", "F16"), (".mcg", "I32")]),
];

/// Lengths of dimensions: those that fit together, and others.
const DIMS: [usize; 16] = [1, 2, 3, 4, 8, 16, 32, 33, 48, 64, 96, 128, 192, 256, 384, 0];

static DIRECTORY: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("nibble-fuzz-directory-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for temporary files");
    path
});

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.iter().copied();
    let mut next = || usize::from(bytes.next().unwrap_or(0));
    let (kind, endings) = KINDS[next() % KINDS.len()];
    let bits = [2, 3, 4, 5, 6, 8, 1, 0][next() % 8];
    let group = [32, 64, 128, 16, -1, 256, 1, 0][next() % 8];
    let flags = next();
    let mode = ["affine", "mxfp4", "nvfp4", "mxfp8"][flags >> 1 & 3];
    let weights = json!({"num_bits": bits, "symmetric": flags & 1 == 0});
    let settings = json!({
        "quant_method": kind, "bits": bits, "group_size": group, "format": "pack-quantized", "quant_algo": "NVFP4",
        "mode": mode, "config_groups": {"g": {"weights": weights}},
        "weight_block_size": if flags & 8 == 0 { json!([128, 64]) } else { Value::Null }, "desc_act": flags & 16 != 0,
    });
    let mut config = json!({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4});
    config[if kind == "mlx" { "quantization" } else { "quantization_config" }] = settings;
    let (mut head, mut body) = (serde_json::Map::new(), Vec::new());
    for (ending, dtype) in endings {
        if next() % 16 == 0 {
            continue;
        }
        let rank = [2, 2, 2, 2, 1, 3, 4, 0][next() % 8];
        let dims: Vec<usize> = (0..rank).map(|_| DIMS[next() % DIMS.len()]).collect();
        let width = match *dtype {
            "I64" => 8,
            "I32" | "U32" | "F32" => 4,
            "I16" | "F16" | "BF16" => 2,
            _ => 1,
        };
        let len = dims.iter().product::<usize>() * width;
        if len > 1 << 20 {
            return;
        }
        let begin = body.len();
        let seed = next();
        body.extend((0..len).map(|i| data.get((seed + i) % data.len().max(1)).copied().unwrap_or(0)));
        let name = format!("model.layers.0.mlp.down_proj{ending}");
        head.insert(name, json!({"dtype": dtype, "shape": dims, "data_offsets": [begin, body.len()]}));
    }
    let head = Value::Object(head).to_string();
    let file = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &body].concat();
    std::fs::write(DIRECTORY.join("config.json"), config.to_string()).expect("a temporary file");
    std::fs::write(DIRECTORY.join("model.safetensors"), file).expect("a temporary file");
    let Ok(checkpoint) = nibble_format::open(&DIRECTORY, &Registry::default()) else { return };
    for tensor in checkpoint.tensors.values().filter(|tensor| tensor.shape().elements() > 0) {
        tensor.decode();
    }
});
