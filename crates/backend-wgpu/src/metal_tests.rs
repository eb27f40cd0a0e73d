//! Every kernel in Metal's language: through naga, as wgpu does it there, and past a compiler that knows enough of that
//! language to see what is wrong with it (`tests/metal`). No Apple device takes part.

use crate::{
    adapters::Caps,
    build::Options,
    common, compile,
    kernels::{argmax, copy, draw},
    shader::{Access, Shader},
};
use naga::{
    ShaderStage,
    back::msl,
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ValidationFlags, Validator},
};
use nibble_backend::{Activations, Error, KvType, Limits};
use nibble_graph::{Graph, Weight};
use nibble_quant::{CODECS, Encoded};
use nibble_tensor::Shape;
use nibble_testkit::{golden, ops};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::PathBuf,
    process::Command,
    sync::LazyLock,
};

/// Buffers that a kernel can have on Metal, of 31: its immediates and the lengths of its buffers take two.
const MOST_BUFFERS: usize = 29;

/// Devices whose kernels differ: Apple's with and without matrices.
fn devices() -> Vec<Caps> {
    let device = |matrix| Caps {
        subgroup: [32; 2],
        matrix,
        half: matrix.is_some(),
        vectors: false,
        int8_dot: false,
        binding: 1 << 30,
        workgroup: 32 << 10,
        coherent: false,
        software: false,
    };
    vec![device(Some(8)), device(None)]
}

/// Types of keys and values, and of inputs of products: each concerns kernels of its own.
const PRECISIONS: &[(KvType, Activations)] = &[
    (KvType::F32, Activations::F32),
    (KvType::F16, Activations::Auto),
    (KvType::Q8_0, Activations::Auto),
    (KvType::Q4_0, Activations::Auto),
];

/// Graphs of every op, every architecture and every encoding.
fn graphs() -> Vec<(String, Graph)> {
    let mut all = ops::graphs();
    let codecs = nibble_quant::Registry::default();
    let files = golden::models().into_iter().chain(golden::gguf_files().into_iter().map(|(path, _)| path));
    for path in files {
        let checkpoint = nibble_format::open(&path, &codecs).unwrap();
        all.push((path.display().to_string(), nibble_model::build(&checkpoint).unwrap().graph));
    }
    all.push(("rotated layers".into(), common::tiles::layers(1, 256, false)));
    // Words of a trellis are read one, two or four at a time.
    let trellises = ["exl3_1_3inst", "exl3_2_mcg", "exl3_4_mul1"].map(nibble_quant::codec);
    for codec in CODECS.iter().copied().chain(trellises) {
        let spec = codec.spec();
        let k = spec.block_len.max(32) * 3;
        let weight = |name: &str, n: usize| {
            let bytes = vec![0u8; n * k / spec.block_len * spec.block_bytes];
            let encoded = Encoded::new(name, Shape::from([n, k]), codec, bytes.into()).unwrap();
            Weight::new(name, encoded)
        };
        let mut graph = Graph::default();
        let tokens = graph.tokens().unwrap();
        let x = graph.embed(tokens, weight("table", 304)).unwrap();
        let y = graph.matmul(x, weight("w", 80)).unwrap();
        graph.output(y);
        all.push((spec.name.into(), graph));
    }
    all
}

/// All kernels that these devices may be given, each once.
static SHADERS: LazyLock<Vec<Shader>> = LazyLock::new(shaders);

fn shaders() -> Vec<Shader> {
    let mut all = BTreeMap::new();
    let mut add = |shader: Shader| all.insert(shader.text.clone(), shader);
    let graphs = graphs();
    for caps in devices() {
        for &(kv, activations) in PRECISIONS {
            let limits = Limits { kv, activations, check_finite: false, ..ops::limits(600) };
            for (name, graph) in &graphs {
                for [strict, fuse] in [[false, true], [true, true], [false, false]] {
                    let options = Options {
                        caps: &caps,
                        limits: &limits,
                        strict,
                        fuse,
                        ..Options::new(&caps, &limits)
                    };
                    let tape = match compile::tape(graph, options, "a device") {
                        Ok(tape) => tape,
                        // Heads that blocks of 32 do not divide.
                        Err(Error::Unsupported { what, .. }) if what.starts_with("keys and values") => {
                            continue;
                        }
                        Err(e) => panic!("{name}: {e}"),
                    };
                    let variants = tape.entries.into_iter().flat_map(|e| e.variants);
                    variants.flat_map(|v| v.calls).for_each(|call| {
                        add(call.shader);
                    });
                }
            }
        }
    }
    add(argmax::scan());
    add(argmax::argmax());
    add(draw::draw());
    add(copy::copy());
    all.into_values().collect()
}

/// A kernel in Metal's language, as wgpu asks naga for it.
fn translate(shader: &Shader) -> Result<String, String> {
    let module = naga::front::wgsl::parse_str(&shader.text)
        .map_err(|e| e.emit_to_string_with_path(&shader.text, &shader.label))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string_with_path(&shader.text, &shader.label))?;
    let mut resources = msl::EntryPointResources {
        immediates_buffer: Some(0),
        sizes_buffer: Some(shader.access.len() as u8 + 1),
        ..Default::default()
    };
    for (i, access) in shader.access.iter().enumerate() {
        let target = msl::BindTarget {
            buffer: Some(i as u8 + 1),
            mutable: *access == Access::Write,
            ..Default::default()
        };
        resources.resources.insert(naga::ResourceBinding { group: 0, binding: i as u32 }, target);
    }
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = msl::Options {
        lang_version: (2, 4),
        per_entry_point_map: msl::EntryPointResourceMap::from([("main".into(), resources)]),
        fake_missing_bindings: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    let entry = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
        ..Default::default()
    };
    let (text, info) = msl::write_string(&module, &info, &options, &entry).map_err(|e| e.to_string())?;
    info.entry_point_names.into_iter().try_for_each(|name| name.map(drop)).map_err(|e| format!("{e:?}"))?;
    Ok(text)
}

/// The compiler: `NIBBLE_CLANG`, which then must be there, or what the system has; says visibly if there is none.
fn clang() -> Option<String> {
    if let Ok(clang) = std::env::var("NIBBLE_CLANG") {
        return Some(clang);
    }
    let names = ["clang", "clang-14", "clang-16", "clang-19"];
    let there = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = names.into_iter().find(there);
    if found.is_none() {
        eprintln!("SKIPPED: no clang to look at what naga wrote (`cargo xtask gpu` brings one)");
    }
    found.map(str::to_owned)
}

/// Vectors that are made of others, and turned into others, by functions: in C++ types of vectors have no constructors.
fn by_functions(kernel: &str) -> String {
    let mut text = kernel.replace("static_cast<metal::", "metal::convert<metal::");
    for ty in ["int", "uint", "half", "float"] {
        for n in 2..=4 {
            text = text.replace(&format!("metal::{ty}{n}("), &format!("metal::make_{ty}{n}("));
        }
    }
    // What naga writes without the namespace.
    let plain = ["float2(as_type<half2>", "uint4(as_type<packed_uchar4>", "int4(as_type<packed_char4>"];
    for made in plain {
        text = text.replace(made, &format!("make_{made}"));
    }
    text = text.replace("(half2(", "(make_half2(");
    text
}

/// What the compiler says of these texts, all at once: starting it takes longer than a kernel does.
fn complaints(clang: &str, kernels: &[(String, String)]) -> Option<String> {
    let shim = nibble_testkit::workspace_root().join("crates/backend-wgpu/tests/metal");
    let mut text = String::from("#include <metal_stdlib>\n#include <simd/simd.h>\n");
    for (i, (label, kernel)) in kernels.iter().enumerate() {
        // Each has types and functions of the same names.
        let kernel = by_functions(&kernel.replace("#include", "//"));
        writeln!(text, "namespace kernel_{i} {{\n#line 1 \"{label}\"\n{kernel}\n}}").unwrap();
    }
    let folder = nibble_testkit::TempDir::new("metal");
    let file: PathBuf = folder.path().join("kernels.metal.cc");
    std::fs::write(&file, text).unwrap();
    let out = Command::new(clang)
        .args(["--target=aarch64-linux-gnu", "-std=c++17", "-fsyntax-only", "-nostdinc", "-ferror-limit=40"])
        // Numbers without a suffix are no doubles there.
        .args(["-Xclang", "-cl-single-precision-constant"])
        .args([
            "-Werror",
            "-Wno-unused",
            "-Wno-unknown-attributes",
            "-Wno-parentheses-equality",
            "-Wno-user-defined-literals",
            "-I",
        ])
        .args([shim.as_path(), file.as_path()])
        .output()
        .expect("a compiler that starts");
    (!out.status.success()).then(|| String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn every_kernel_is_valid_in_metals_language() {
    let kernels: Vec<_> = SHADERS
        .iter()
        .map(|shader| {
            assert!(shader.access.len() <= MOST_BUFFERS, "{}: too many buffers", shader.label);
            let text = translate(shader).unwrap_or_else(|e| panic!("{}: {e}\n{}", shader.label, shader.text));
            (shader.label.clone(), text)
        })
        .collect();
    eprintln!("{} kernels translated", kernels.len());
    let Some(clang) = clang() else { return };
    if let Some(what) = complaints(&clang, &kernels) {
        panic!("{what}");
    }
}

/// Kernels without a case of their own, by the first word of their labels: element by element, copies, the bank, recurrent layers,
/// choices; attention in runs is tried with the kernel that joins them.
const UNTRIED: &[&str] = &[
    "argmax",
    "argmax_parts",
    "attention",
    "attention_alone",
    "columns",
    "combine",
    "copy",
    "count",
    "draw",
    "expert_bias",
    "gated_delta",
    "hadamard",
    "kv_write",
    "kv_write_blocks",
    "kv_write_heads",
    "pointwise",
    "rope",
    "route",
    "short_conv",
    "slice",
    "unrotate",
    "wanted",
];

/// What is compared op by op is never the kernel that joins what lies between: products that make their rotated input, above all.
/// They are tried at the start.
#[test]
fn every_kernel_that_joins_ops_is_tried_at_the_start() {
    let first = |shader: &Shader| shader.label.split(' ').next().unwrap_or_default().to_string();
    let untried: BTreeSet<_> = SHADERS.iter().filter(|s| s.twin.is_none()).map(first).collect();
    assert_eq!(untried.iter().map(String::as_str).collect::<Vec<_>>(), UNTRIED);
    let rotated = SHADERS.iter().filter(|shader| first(shader) == "rotated").count();
    assert!(rotated > 10, "{rotated}");
}

/// Apple's compiler makes wrong code of matrices in workgroups of one subgroup (tracel-ai/cubek, pull request 645).
#[test]
fn kernels_with_matrices_have_more_than_one_subgroup() {
    let with_matrices: Vec<_> = SHADERS.iter().filter(|s| s.text.contains("coop_mat")).collect();
    assert!(!with_matrices.is_empty());
    for shader in with_matrices {
        let (_, size) = shader.text.split_once("@workgroup_size(").expect("an entry point");
        let size: u32 = size.split(')').next().unwrap().parse().expect("one number");
        assert!(size >= 64, "{}: {size} invocations", shader.label);
    }
}

/// What naga lets through and Metal does not take: the check would be none if it took everything.
#[test]
fn a_kernel_that_metal_would_refuse_is_refused() {
    let Some(clang) = clang() else { return };
    let text = "enable f16;\nenable wgpu_cooperative_matrix;\nstruct Params { rows: u32 }\n\
        var<immediate> p: Params;\n@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
        var<workgroup> tile: array<vec4<f16>, 64>;\n\
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) local: u32) {\n\
        tile[local] = vec4<f16>(f16(local));\nworkgroupBarrier();\n\
        let a = coopLoad<coop_mat8x8<f16, A>>(&tile[0], 2u);\nlet b = coopLoad<coop_mat8x8<f16, B>>(&tile[0], 2u);\n\
        var c = coop_mat8x8<f32, C>();\nc = coopMultiplyAdd(a, b, c);\ncoopStore(c, &y[p.rows], 8u);\n}\n";
    let shader = Shader {
        label: "vectors".into(),
        text: text.into(),
        access: vec![Access::Write],
        words: 1,
        twin: None,
    };
    let text = translate(&shader).expect("naga takes it");
    let found = complaints(&clang, &[("vectors".into(), text)]).expect("the compiler does not");
    assert!(found.contains("vectors:"), "{found}");
}
