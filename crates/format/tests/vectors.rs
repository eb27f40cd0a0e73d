//! Every packed layout against the reference's own bytes and numbers, where the shared data is: each vector becomes a
//! directory of its kind, and the canonical tensors that come out of it must mean the vector's numbers.

use half::f16;
use nibble_format::{Checkpoint, open, safetensors::SafetensorsFile};
use nibble_quant::Registry;
use nibble_testkit::{
    TempDir,
    gguf::Builder,
    pack::{Tensor, safetensors},
    shared_dir,
};
use serde_json::{Value as Json, json};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

const MODULE: &str = "model.layers.0.mlp.down_proj";
const WEIGHT: &str = "layer.0.ffn.down";

struct Vectors(SafetensorsFile);

impl Vectors {
    fn read(dir: &Path, name: &str) -> Self {
        let path = dir.join(format!("vectors/{name}.safetensors"));
        Self(SafetensorsFile::parse(std::fs::read(&path).unwrap().into(), &path).unwrap())
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.0.bytes[self.0.tensors[name].range.clone()]
    }

    fn dims(&self, name: &str) -> &[usize] {
        &self.0.tensors[name].shape
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
    }

    fn number(&self, key: &str) -> usize {
        self.0.metadata[key].parse().unwrap()
    }
}

fn tensor(name: String, dtype: &str, dims: &[usize], bytes: &[u8]) -> Tensor {
    Tensor::new(name, dtype, dims, bytes)
}

fn directory(settings: (&str, Json), tensors: &[Tensor]) -> Checkpoint {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let dir = TempDir::new(&format!("vectors-{}", FOLDERS.fetch_add(1, Ordering::Relaxed)));
    let mut config = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8
    });
    config[settings.0] = settings.1;
    dir.write("config.json", config.to_string());
    dir.write("model.safetensors", safetensors(tensors));
    open(dir.path(), &Registry::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The tensors of a vector file under the module's name: `(ending, name in the file, type that it stands for)`.
fn parts(v: &Vectors, list: &[(&str, &str, &str)]) -> Vec<Tensor> {
    let part = |&(ending, name, dtype): &(&str, &str, &str)| {
        let info = &v.0.tensors[name];
        let dtype = if dtype.is_empty() { &info.dtype } else { dtype };
        let mut dims = info.shape.clone();
        let width = |dtype: &str| match dtype {
            "I32" | "U32" => 4,
            _ => 1,
        };
        if info.dtype == "U8" {
            *dims.last_mut().unwrap() /= width(dtype);
        }
        tensor(format!("{MODULE}{ending}"), dtype, &dims, v.bytes(name))
    };
    list.iter().map(part).collect()
}

fn decoded(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    checkpoint.tensors.get(name).unwrap_or_else(|| panic!("no {name}: {checkpoint:?}")).decode()
}

fn same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        // A zero without a sign is what integers make of a zero with one.
        let same = f.to_bits() == e.to_bits() || *f == 0.0 && *e == 0.0 || f.is_nan() && e.is_nan();
        assert!(same, "{what}: number {i} is {f:e}, not {e:e}");
    }
}

/// `[in, out]` as `[out, in]`.
fn turned(numbers: &[f32], inputs: usize) -> Vec<f32> {
    let outputs = numbers.len() / inputs;
    (0..outputs).flat_map(|o| (0..inputs).map(move |i| numbers[i * outputs + o])).collect()
}

fn half(numbers: &[f32]) -> Vec<f32> {
    numbers.iter().map(|&x| f16::from_f32(x).to_f32()).collect()
}

/// The matrix whose columns stand in the order of the inputs, of the parts that `names` lists.
fn in_order(checkpoint: &Checkpoint, names: &[String], inputs: usize) -> Vec<f32> {
    let order = decoded(checkpoint, &format!("{WEIGHT}.order"));
    let parts: Vec<_> =
        names.iter().map(|name| (decoded(checkpoint, name), checkpoint.tensors[name].shape())).collect();
    let outputs = parts[0].1.rows();
    let mut matrix = vec![f32::NAN; outputs * inputs];
    for output in 0..outputs {
        let row =
            parts.iter().flat_map(|(numbers, shape)| &numbers[output * shape.row_len()..][..shape.row_len()]);
        for (&number, &input) in row.zip(&order) {
            match input {
                -1.0 => assert_eq!(number, 0.0, "a column that fills up"),
                _ => matrix[output * inputs + input as usize] = number,
            }
        }
    }
    matrix
}

/// Names of the vectors that begin with `prefix`.
fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("vectors")).unwrap();
    let stem = |entry: std::fs::DirEntry| {
        entry.file_name().to_str()?.strip_suffix(".safetensors").map(str::to_owned)
    };
    let mut names: Vec<_> =
        entries.filter_map(|e| stem(e.unwrap())).filter(|name| name.starts_with(prefix)).collect();
    assert!(!names.is_empty(), "{prefix}");
    names.sort();
    names
}

#[test]
fn mlx_vectors_are_read_bit_for_bit() {
    let Some(dir) = shared_dir() else { return };
    for name in names(&dir, "mlx_affine") {
        let v = Vectors::read(&dir, &name);
        let settings = json!({"bits": v.number("bits"), "group_size": v.number("group_size")});
        for (end, expected) in [("", "dequant"), ("_f16", "dequant_f16")] {
            let [raw, scales, biases] = ["raw", "scales", "biases"].map(|part| format!("{part}{end}"));
            let list = [(".weight", &raw[..], "U32"), (".scales", &scales, ""), (".biases", &biases, "")];
            let checkpoint = directory(("quantization", settings.clone()), &parts(&v, &list));
            assert_eq!(checkpoint.container, "mlx");
            same_bits(&name, &decoded(&checkpoint, WEIGHT), &v.floats(expected));
        }
    }
    for name in names(&dir, "mlx_").iter().filter(|name| name.contains("fp")) {
        let v = Vectors::read(&dir, name);
        let list = [(".weight", "raw", "U32"), (".scales", "scales", "")];
        let mode = name.strip_prefix("mlx_").unwrap();
        let settings = json!({"bits": v.number("bits"), "group_size": v.number("group_size"), "mode": mode});
        let checkpoint = directory(("quantization", settings), &parts(&v, &list));
        same_bits(name, &decoded(&checkpoint, WEIGHT), &v.floats("dequant"));
    }
    let v = Vectors::read(&dir, "mlx_switch_b4_g64");
    let mut tensors =
        parts(&v, &[(".weight", "raw", "U32"), (".scales", "scales", ""), (".biases", "biases", "")]);
    for t in &mut tensors {
        t.name = t.name.replace("mlp.down_proj", "mlp.switch_mlp.down_proj");
    }
    // The settings of a module stand before those of all.
    let settings =
        json!({"bits": 3, "group_size": 32, "model.layers.0.mlp.switch_mlp.down_proj": {"bits": 4}});
    let mut checkpoint = directory(("quantization", settings), &tensors);
    same_bits("experts", &decoded(&checkpoint, "layer.0.moe.down"), &v.floats("dequant"));
    assert_eq!(checkpoint.tensors.remove("layer.0.moe.down").unwrap().shape().dims(), v.dims("dequant"));
}

#[test]
fn gptq_vectors_are_read_as_their_half_precision_says() {
    let Some(dir) = shared_dir() else { return };
    for name in names(&dir, "gptq_") {
        let v = Vectors::read(&dir, &name);
        let list = ["qweight", "qzeros", "scales", "g_idx"].map(|part| (format!(".{part}"), part));
        let list: Vec<_> = list.iter().map(|(ending, part)| (&ending[..], *part, "")).collect();
        let bits = v.number("bits");
        let config = json!({"quant_method": "gptq", "bits": bits, "group_size": v.number("group_size")});
        let checkpoint = directory(("quantization_config", config), &parts(&v, &list));
        assert_eq!(checkpoint.container, "gptq");
        let inputs = v.dims("dequant")[0];
        let found = match name.contains("actorder") {
            true => in_order(&checkpoint, &[WEIGHT.into()], inputs),
            false => decoded(&checkpoint, WEIGHT),
        };
        same_bits(&name, &half(&found), &turned(&v.floats("dequant"), inputs));
    }
}

#[test]
fn awq_vectors_are_read_as_their_half_precision_says() {
    let Some(dir) = shared_dir() else { return };
    let v = Vectors::read(&dir, "awq_b4_g128");
    let list = [(".qweight", "qweight", ""), (".qzeros", "qzeros", ""), (".scales", "scales", "")];
    let config = json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"});
    let checkpoint = directory(("quantization_config", config), &parts(&v, &list));
    assert_eq!(checkpoint.container, "awq");
    let inputs = v.dims("dequant")[0];
    same_bits("awq", &half(&decoded(&checkpoint, WEIGHT)), &turned(&v.floats("dequant"), inputs));
}

#[test]
fn compressed_tensors_vectors_are_read_bit_for_bit() {
    let Some(dir) = shared_dir() else { return };
    let config = |format: &str, bits: usize| {
        let groups = json!({"group_0": {"targets": ["Linear"], "weights": {"num_bits": bits}}});
        json!({"quant_method": "compressed-tensors", "format": format, "config_groups": groups})
    };
    for name in names(&dir, "ct_int") {
        let v = Vectors::read(&dir, &name);
        let mut list = vec![
            (".weight_packed", "raw", "I32"),
            (".weight_scale", "weight_scale", ""),
            (".weight_shape", "weight_shape", ""),
        ];
        if v.0.tensors.contains_key("weight_zero_point") {
            list.push((".weight_zero_point", "weight_zero_point", ""));
        }
        let config = config("pack-quantized", v.number("bits"));
        let checkpoint = directory(("quantization_config", config), &parts(&v, &list));
        same_bits(&name, &decoded(&checkpoint, WEIGHT), &v.floats("dequant"));
    }
    let v = Vectors::read(&dir, "ct_nvfp4");
    let list = [
        (".weight_packed", "raw", ""),
        (".weight_scale", "weight_scale", "F8_E4M3"),
        (".weight_global_scale", "weight_global_scale", ""),
    ];
    let checkpoint = directory(("quantization_config", config("nvfp4-pack-quantized", 4)), &parts(&v, &list));
    let factor = decoded(&checkpoint, &format!("{WEIGHT}.scale"))[0];
    for (w, expected) in decoded(&checkpoint, WEIGHT).iter().zip(v.floats("dequant")) {
        // Scale and factor are joined before or after the product: two roundings apart.
        assert!(
            (w * factor - expected).abs() <= expected.abs() * 2f32.powi(-22),
            "{w} * {factor}, not {expected}"
        );
    }
}

#[test]
fn float_vectors_are_read_bit_for_bit() {
    let Some(dir) = shared_dir() else { return };
    let v = Vectors::read(&dir, "fp8_block128");
    let list = [(".weight", "raw", "F8_E4M3"), (".weight_scale_inv", "weight_scale_inv", "")];
    let config = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let checkpoint = directory(("quantization_config", config), &parts(&v, &list));
    assert_eq!(checkpoint.container, "fp8");
    same_bits("fp8_block128", &decoded(&checkpoint, WEIGHT), &v.floats("dequant"));

    let v = Vectors::read(&dir, "fp8_tables");
    for (dtype, expected) in [("F8_E4M3", "dequant"), ("F8_E5M2", "dequant_e5m2")] {
        let mut tensors = parts(&v, &[(".weight", "raw", dtype)]);
        tensors[0].dims = vec![8, 32];
        tensors.push(tensor(format!("{MODULE}.weight_scale"), "F32", &[], &1f32.to_le_bytes()));
        let checkpoint = directory(("quantization_config", json!({"quant_method": "fp8"})), &tensors);
        same_bits(dtype, &decoded(&checkpoint, WEIGHT), &v.floats(expected));
    }
    // E8M0, one scale after the other, each with a code of one.
    let powers = v.floats("dequant_e8m0");
    let codec = nibble_quant::codec("mxfp8");
    for (e, power) in powers.iter().enumerate() {
        let mut numbers = [0.0; 32];
        codec.decode(&[&[e as u8][..], &[0x38; 32]].concat(), &mut numbers);
        same_bits("e8m0", &numbers, &[*power; 32]);
    }

    let v = Vectors::read(&dir, "gptoss_mxfp4");
    let mut tensors = parts(&v, &[("_blocks", "raw", ""), ("_scales", "scales", "")]);
    for t in &mut tensors {
        t.name = t.name.replace("mlp.down_proj", "mlp.experts.down_proj");
    }
    let config = json!({"quant_method": "mxfp4"});
    let checkpoint = directory(("quantization_config", config.clone()), &tensors);
    assert_eq!(checkpoint.container, "mxfp4");
    let [experts, inputs, outputs] = v.dims("dequant").try_into().unwrap();
    let whole = v.floats("dequant");
    let expected: Vec<f32> =
        whole.chunks(inputs * outputs).flat_map(|matrix| turned(matrix, inputs)).collect();
    same_bits("gptoss_mxfp4", &decoded(&checkpoint, "layer.0.moe.down"), &expected);
    // The same rows as gates and ups in turn.
    for t in &mut tensors {
        t.name = t.name.replace("down_proj", "gate_up_proj");
    }
    let checkpoint = directory(("quantization_config", config), &tensors);
    for (which, name) in ["gate", "up"].iter().enumerate() {
        let rows = expected.chunks(inputs).enumerate().filter(|(row, _)| row % 2 == which);
        let expected: Vec<f32> = rows.flat_map(|(_, row)| row.iter().copied()).collect();
        same_bits(name, &decoded(&checkpoint, &format!("layer.0.moe.{name}")), &expected);
    }
    assert_eq!(experts, 2);
}

#[test]
fn bitnet_vectors_are_read_bit_for_bit() {
    let Some(dir) = shared_dir() else { return };
    let v = Vectors::read(&dir, "bitnet_hf");
    let list = [(".weight", "raw", ""), (".weight_scale", "weight_scale", "")];
    let config = json!({"quant_method": "bitnet"});
    let checkpoint = directory(("quantization_config", config), &parts(&v, &list));
    assert_eq!(checkpoint.container, "bitnet");
    let ternary: Vec<f32> = v.bytes("ternary").iter().map(|&t| f32::from(t as i8)).collect();
    same_bits("bitnet_hf", &decoded(&checkpoint, WEIGHT), &ternary);
    let factor = decoded(&checkpoint, &format!("{WEIGHT}.scale"))[0];
    for (t, expected) in ternary.iter().zip(v.floats("dequant")) {
        assert!(
            (t * factor - expected).abs() <= expected.abs() * 2f32.powi(-23),
            "{t} * {factor}, not {expected}"
        );
    }
}

#[test]
fn exl2_vectors_are_read_as_their_half_precision_says() {
    let Some(dir) = shared_dir() else { return };
    for name in names(&dir, "exl2_") {
        let v = Vectors::read(&dir, &name);
        let list = ["q_weight", "q_invperm", "q_scale", "q_scale_max", "q_groups"]
            .map(|part| (format!(".{part}"), part));
        let list: Vec<_> = list.iter().map(|(ending, part)| (&ending[..], *part, "")).collect();
        let checkpoint =
            directory(("quantization_config", json!({"quant_method": "exl2"})), &parts(&v, &list));
        assert_eq!(checkpoint.container, "exl2");
        let part = |i: usize| format!("{WEIGHT}.part.{i}");
        let names: Vec<_> =
            (0..).map(part).take_while(|name| checkpoint.tensors.contains_key(name)).collect();
        let inputs = v.dims("dequant")[0];
        let found = in_order(&checkpoint, &names, inputs);
        same_bits(&name, &half(&found), &turned(&v.floats("dequant"), inputs));
    }
}

#[test]
fn exl3_vectors_are_read_bit_for_bit_and_rotate_back_to_their_matrix() {
    let Some(dir) = shared_dir() else { return };
    let books = Vectors::read(&dir, "exl3_codebooks");
    use nibble_quant::exl3::Codebook::{Mcg, Mul1, ThreeInst};
    for (book, name) in [(ThreeInst, "3inst"), (Mcg, "mcg"), (Mul1, "mul1")] {
        let values = books.bytes(name).as_chunks::<2>().0.iter().map(|value| u16::from_le_bytes(*value));
        assert!(
            values.enumerate().all(|(state, value)| book.value(state as u16).to_bits() == value),
            "{name}"
        );
    }
    for name in names(&dir, "exl3_k") {
        let v = Vectors::read(&dir, &name);
        let there = |part: &&str| v.0.tensors.contains_key(*part);
        let list = ["trellis", "suh", "svh", "mcg", "mul1"].into_iter().filter(there);
        let list: Vec<_> = list.map(|part| (format!(".{part}"), part)).collect();
        let list: Vec<_> = list.iter().map(|(ending, part)| (&ending[..], *part, "")).collect();
        let checkpoint =
            directory(("quantization_config", json!({"quant_method": "exl3"})), &parts(&v, &list));
        assert_eq!(checkpoint.container, "exl3");
        let inner = v.bytes("inner").as_chunks::<2>().0.iter().map(|x| f16::from_le_bytes(*x).to_f32());
        let [inputs, outputs] = v.dims("dequant").try_into().unwrap();
        let found = decoded(&checkpoint, WEIGHT);
        same_bits(&name, &found, &turned(&inner.collect::<Vec<_>>(), inputs));
        let (rotate, unrotate) = (
            decoded(&checkpoint, &format!("{WEIGHT}.rotate")),
            decoded(&checkpoint, &format!("{WEIGHT}.unrotate")),
        );
        let rotated = rotated(&found, &rotate, &unrotate);
        let expected = turned(&v.floats("dequant"), inputs);
        let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (f, e) in rotated.iter().zip(&expected) {
            assert!((f - f64::from(*e)).abs() <= 1e-6 * f64::from(largest), "{name}: {f} is not {e}");
        }
        assert_eq!((rotate.len(), unrotate.len()), (inputs, outputs));
    }
}

/// `diag(unrotate) H W H diag(rotate)` of `[out, in]`, in blocks of 128.
fn rotated(matrix: &[f32], rotate: &[f32], unrotate: &[f32]) -> Vec<f64> {
    let (outputs, inputs) = (unrotate.len(), rotate.len());
    let mut columns: Vec<f64> = vec![0.0; outputs * inputs];
    let mut buffer = vec![0.0; inputs];
    for (row, out) in matrix.chunks(inputs).zip(columns.chunks_mut(inputs)) {
        buffer.iter_mut().zip(row).for_each(|(b, &x)| *b = f64::from(x));
        buffer.chunks_mut(128).for_each(hadamard);
        out.iter_mut().zip(&buffer).zip(rotate).for_each(|((out, b), &r)| *out = b * f64::from(r));
    }
    let mut column = vec![0.0; outputs];
    for input in 0..inputs {
        (0..outputs).for_each(|o| column[o] = columns[o * inputs + input]);
        column.chunks_mut(128).for_each(hadamard);
        (0..outputs).for_each(|o| columns[o * inputs + input] = column[o] * f64::from(unrotate[o]));
    }
    columns
}

fn hadamard(x: &mut [f64]) {
    let before = x.to_vec();
    let sign = |r: usize, c: usize| if (r & c).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    for (r, x) in x.iter_mut().enumerate() {
        let sum: f64 = before.iter().enumerate().map(|(c, b)| sign(r, c) * b).sum();
        *x = sum / (before.len() as f64).sqrt();
    }
}

/// A list of a GGUF file as text or numbers.
fn list(b: &mut Builder, key: &str, element: u32, items: &[Vec<u8>]) {
    b.list(&format!("prism.hadamard.{key}"), element, items.len() as u64, &items.concat());
}

/// A file whose matrix `name` is rotated as `v` says; `grouped`: its columns are value heads in their key heads' order.
fn prism_file(v: &Vectors, name: &str, grouped: bool) -> Checkpoint {
    let width = v.dims("signs")[0];
    let mut b = Builder::new();
    b.text("general.architecture", "qwen35").u32("qwen35.block_count", 1);
    b.u32("qwen35.ssm.group_count", v.number("perm_n_k") as u32);
    b.u32("qwen35.ssm.time_step_rank", (v.number("perm_n_k") * v.number("perm_rep")) as u32);
    b.u32("prism.hadamard.version", 1);
    b.u32("prism.hadamard.block_size", v.number("block_size") as u32);
    b.text("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    b.text("prism.hadamard.axis", "input-last-dimension").text("prism.hadamard.sign_mode", "explicit");
    b.entry(b"prism.hadamard.gdn_v_grouped", 7, &[u8::from(grouped)]);
    let signs: Vec<_> = v.bytes("signs").chunks(4).map(<[u8]>::to_vec).collect();
    list(&mut b, "sign_widths", 5, &[(width as u32).to_le_bytes().to_vec()]);
    list(&mut b, "sign_values", 5, &signs);
    let named = b.string(name.as_bytes());
    list(&mut b, "weight_names", 8, &[named]);
    let rows = v.dims("weight_stored")[0];
    b.tensor(name, &[width as u64, rows as u64], 0, v.bytes("weight_stored"));
    nibble_format::open_bytes(b.build().into(), "rotated.gguf", &Registry::default()).unwrap()
}

#[test]
fn prism_rotations_are_those_of_the_vector() {
    let Some(dir) = shared_dir() else { return };
    let v = Vectors::read(&dir, "prism_hadamard");
    let (block, inputs) = (v.number("block_size"), v.floats("x"));
    for (name, canonical, grouped, forward) in [
        ("output.weight", "head", false, "forward_signs"),
        ("blk.0.ssm_out.weight", "layer.0.delta.out", true, "forward_signs_perm"),
    ] {
        let c = prism_file(&v, name, grouped);
        let gain = c.tensors[&format!("{canonical}.rotate")].decode();
        let order = c.tensors.get(&format!("{canonical}.order")).map(|order| order.decode());
        assert_eq!(order.is_some(), grouped);
        let (mut turned, mut products) = (Vec::new(), Vec::new());
        let matrix = c.tensors[canonical].decode();
        for x in inputs.chunks(gain.len()) {
            let picked = |i: usize| order.as_ref().map_or(x[i], |order| x[order[i] as usize]);
            let mut x: Vec<f64> = (0..x.len()).map(|i| f64::from(picked(i) * gain[i])).collect();
            x.chunks_mut(block).for_each(hadamard);
            products.extend(
                matrix
                    .chunks(x.len())
                    .map(|row| row.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum::<f64>()),
            );
            turned.extend(x);
        }
        near(&turned, &v.floats(forward), forward);
        if !grouped {
            near(&products, &v.floats("y"), "y");
        }
    }
}

/// Within 1e-5 of the largest magnitude, which is the vector's tolerance.
fn near(found: &[f64], expected: &[f32], name: &str) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (i, (found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - f64::from(expected)).abs();
        assert!(error <= 1e-5 * f64::from(largest), "{name}[{i}]: {found}, expected {expected}");
    }
}

/// The file of a vector of BitNet's tables, its factor without dimensions, as the converter writes it.
fn table_file(v: &Vectors, id: u32) -> Vec<u8> {
    let [rows, columns] = v.dims("ternary").try_into().unwrap();
    let mut b = Builder::llama();
    b.tensor("blk.0.ffn_up.weight", &[columns as u64, rows as u64], id, v.bytes("raw"));
    b.tensor("blk.0.ffn_up.weight_scale", &[], 0, v.bytes("scale"));
    b.build()
}

#[test]
fn tl1_and_tl2_are_read_by_the_tiles_in_the_file_beside_them() {
    let Some(dir) = shared_dir() else { return };
    for (name, id) in [("bitnet_tl1", 38), ("bitnet_tl2", 39), ("bitnet_tl2", 42)] {
        let (v, at) = (Vectors::read(&dir, name), TempDir::new(&format!("{name}-{id}")));
        let [m, k, bm, bk, bmm] = ["M", "K", "BM", "BK", "bm"].map(|key| v.number(key));
        let config = format!("[Kernels_0]\nm = {m}\nk = {k}\nbm = {bm}\nbk = {bk}\nbmm = {bmm}\n");
        at.write("kernel_config.ini", config);
        at.write("model.gguf", table_file(&v, id));
        let c = open(&at.path().join("model.gguf"), &Registry::default()).unwrap();
        let matrix = &c.tensors["layer.0.ffn.up"];
        let expected: Vec<f32> = v.bytes("ternary").iter().map(|&t| f32::from(t as i8)).collect();
        assert!(matrix.is_owned() && matrix.decode() == expected, "{name} as {id}");
        let factor = c.tensors["layer.0.ffn.up.scale"].decode();
        assert_eq!(factor, v.floats("scale"));
        let product: Vec<f32> = expected.iter().map(|t| t * factor[0]).collect();
        assert_eq!(product, v.floats("dequant"));
        assert_eq!((c.tensors.len(), c.ignored.len(), c.unused.len()), (2, 0, 0));
    }
}

/// A file that nobody reads checks nothing: every one belongs to a test here or in `quant/tests/vectors.rs`.
#[test]
fn every_vector_is_used() {
    let Some(dir) = shared_dir() else { return };
    const FAMILIES: &[&str] = &["mlx_", "gptq_", "ct_int", "exl2_", "exl3_k"];
    const SINGLE: &[&str] = &[
        "awq_b4_g128",
        "bitnet_hf",
        "bitnet_i2_s",
        "bitnet_tl1",
        "bitnet_tl2",
        "ct_nvfp4",
        "exl3_codebooks",
        "fp8_block128",
        "fp8_tables",
        "ggml_iq_tables",
        "ggml_quantize",
        "gptoss_mxfp4",
        "prism_hadamard",
    ];
    let known = |name: &String| {
        let codec = name.strip_prefix("ggml_").or_else(|| name.strip_prefix("prism_"));
        let codec = codec.and_then(|codec| Registry::default().by_name(codec));
        codec.is_some_and(|codec| codec.spec().gguf.is_some())
            || SINGLE.contains(&name.as_str())
            || FAMILIES.iter().any(|family| name.starts_with(family))
    };
    let unknown: BTreeSet<_> = names(&dir, "").into_iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
