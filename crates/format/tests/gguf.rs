//! GGUF: what must be refused and how it is said, byte orders, shards, the two meanings of type 42.

use nibble_format::{
    Checkpoint, Error, OpenOptions, TokenizerSource, Type42, Value,
    gguf::{Entry, GgufFile, WriteTensor, open_files, write, write_to},
    open, open_bytes, open_with,
};
use nibble_quant::{Registry, codec};
use nibble_testkit::Rng;
use nibble_testkit::{TempDir, gguf::Builder};
use std::path::Path;

fn opened(builder: &Builder) -> Result<Checkpoint, Error> {
    open_bytes(builder.build().into(), "test.gguf", &Registry::default())
}

/// Checks that it is refused with a message that holds all of `words`.
fn refused(builder: &Builder, words: &[&str]) {
    let message = opened(builder).expect_err(&words.join(" ")).to_string();
    assert!(message.starts_with("test.gguf: "), "{message}");
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

fn with(change: impl FnOnce(&mut Builder)) -> Builder {
    let mut builder = Builder::llama();
    change(&mut builder);
    builder
}

#[test]
fn products_of_dimensions_that_wrap_are_refused_with_the_tensor() {
    for dims in
        [&[4, 1 << 62][..], &[1152, (1 << 42) + 1], &[1 << 31, 1 << 31, 1 << 31], &[i64::MAX as u64, 2]]
    {
        refused(
            &with(|b| {
                b.info(b"output.weight", dims, 0, 0);
            }),
            &["tensor `output.weight`"],
        );
    }
    for dims in [&[1 << 63][..], &[u64::MAX, 1], &[0, 4], &[4, 0]] {
        refused(
            &with(|b| {
                b.info(b"t", dims, 0, 0);
            }),
            &["tensor `t`", "dimensions from 1"],
        );
    }
}

#[test]
fn lengths_past_the_end_are_refused_before_anything_is_allocated() {
    let u64_bytes = |n: u64| n.to_le_bytes();
    for len in [1 << 30, (1 << 30) + 1, 1 << 63, u64::MAX] {
        refused(
            &with(|b| {
                b.entry(b"a.text", 8, &u64_bytes(len));
            }),
            &["key `a.text`"],
        );
    }
    for element in [0, 1, 4, 6, 7, 8, 10, 12] {
        for count in [100, 1 << 40, 1 << 61, u64::MAX] {
            refused(
                &with(|b| {
                    b.list("a.list", element, count, b"");
                }),
                &["key `a.list`"],
            );
        }
    }
    refused(&with(|b| b.entry_count = Some(u64::MAX)), &["overflows"]);
    refused(&with(|b| b.entry_count = Some(1 << 40)), &["keys", "left in the file"]);
    refused(&with(|b| b.tensor_count = Some(u64::MAX / 2)), &["overflows"]);
    refused(&with(|b| b.tensor_count = Some(1 << 30)), &["tensor infos", "left in the file"]);
    refused(&with(|b| b.entry_count = Some(2)), &["key number 1"]);
}

#[test]
fn more_than_four_dimensions_are_refused_with_the_limit() {
    for n_dims in [5, 9, u32::MAX] {
        let message = ["tensor `t`", "at most 4 dimensions", &n_dims.to_string()];
        refused(
            &with(|b| {
                b.info_with_n_dims(b"t", n_dims, &[1; 9], 0, 0);
            }),
            &message,
        );
    }
}

#[test]
fn keys_and_names_are_unique_and_proper() {
    refused(
        &with(|b| {
            b.u32("a", 1).u32("a", 2);
        }),
        &["key `a`", "twice"],
    );
    refused(
        &with(|b| {
            b.u32("", 1);
        }),
        &["key number 1", "an empty one"],
    );
    refused(
        &with(|b| {
            b.u32("a\0b", 1);
        }),
        &["key number 1", "without NUL"],
    );
    refused(
        &with(|b| {
            b.u32(&"k".repeat(65_536), 1);
        }),
        &["key number 1", "65535"],
    );
    refused(
        &with(|b| {
            b.entry(b"\xFF", 4, &[0; 4]);
        }),
        &["key number 1", "UTF-8"],
    );
    refused(
        &with(|b| {
            b.tensor("t", &[8], 0, &[0; 32]).tensor("t", &[8], 0, &[0; 32]);
        }),
        &["`t`", "twice"],
    );
    refused(
        &with(|b| {
            b.info(b"", &[8], 0, 0);
        }),
        &["tensor number 0"],
    );
}

#[test]
fn values_have_known_types() {
    refused(
        &with(|b| {
            b.entry(b"a", 13, &[0; 8]);
        }),
        &["key `a`", "value type from 0 to 12", "found 13"],
    );
    refused(
        &with(|b| {
            b.entry(b"a", u32::MAX, &[0; 8]);
        }),
        &["key `a`", "value type"],
    );
    refused(
        &with(|b| {
            b.list("a", 9, 1, &[0; 20]);
        }),
        &["key `a`", "element type", "found 9"],
    );
    refused(
        &with(|b| {
            b.list("a", 77, 1, &[0; 20]);
        }),
        &["key `a`", "element type", "found 77"],
    );
    refused(
        &with(|b| {
            b.entry(b"a", 7, &[2]);
        }),
        &["key `a`", "a boolean, 0 or 1", "found 2"],
    );
}

#[test]
fn alignment_is_a_small_power_of_two_as_u32() {
    for alignment in [0, 3, 33, 1 << 17, 1 << 31] {
        refused(
            &with(|b| {
                b.u32("general.alignment", alignment);
            }),
            &["key `general.alignment`", "power of two"],
        );
    }
    refused(
        &with(|b| {
            b.entry(b"general.alignment", 10, &32u64.to_le_bytes());
        }),
        &["as U64"],
    );
    refused(
        &with(|b| {
            b.text("general.alignment", "32");
        }),
        &["key `general.alignment`"],
    );
    for alignment in [1, 8, 64, 4096] {
        let b = with(|b| {
            b.u32("general.alignment", alignment as u32);
            b.alignment = alignment;
            b.tensor("output_norm.weight", &[3], 0, &[1; 12]).tensor("output.weight", &[2], 0, &[2; 8]);
        });
        assert_eq!(opened(&b).unwrap().tensors["head"].parts()[0], [2; 8][..]);
    }
}

#[test]
fn rows_are_whole_blocks_and_types_are_known() {
    refused(
        &with(|b| {
            b.tensor("t", &[33, 2], 8, &[0; 200]);
        }),
        &["tensor `t`", "q8_0 blocks of 32"],
    );
    for (id, name) in [(4, "Q4_2"), (31, "Q4_0_4_4"), (37, "I8_S"), (38, "TL1"), (999, "not known")] {
        let id_text = format!("tensor type {id}");
        refused(
            &with(|b| {
                b.tensor("t", &[256], id, &[0; 2000]);
            }),
            &["tensor `t`", &id_text, name],
        );
    }
}

#[test]
fn i2_s_brings_its_factor_with_it() {
    let tensor = |factor: f32| {
        let bytes = [&[0b0001_1000; 32][..], &factor.to_le_bytes(), &[0; 28]].concat();
        with(|b| {
            b.tensor("output.weight", &[128, 1], 36, &bytes);
        })
    };
    refused(&tensor(0.0), &["tensor `output.weight`", "above 0"]);
    let checkpoint = opened(&tensor(0.5)).unwrap();
    let numbers = checkpoint.tensors["head"].decode();
    let planes: Vec<f32> = numbers.chunks(32).map(|plane| plane[0]).collect();
    assert_eq!((planes, checkpoint.tensors["head.scale"].decode()), (vec![-1.0, 0.0, 1.0, -1.0], vec![0.5]));
    assert!(numbers.chunks(32).all(|plane| plane.iter().all(|n| *n == plane[0])));
}

#[test]
fn tensors_follow_one_another_and_lie_in_the_file() {
    let b = with(|b| {
        b.tensor("a", &[8], 0, &[0; 32]).info(b"b", &[8], 0, 64);
        b.data.resize(96, 0);
    });
    refused(&b, &["tensor `b`", "offset 32", "found 64"]);
    for offset in [32, u64::MAX - 7, 1 << 63] {
        refused(
            &with(|b| {
                b.info(b"a", &[8], 0, offset);
            }),
            &["tensor `a`", "offset 0"],
        );
    }
    let mut b = with(|b| {
        b.tensor("a", &[8], 0, &[0; 32]).tensor("last", &[8], 0, &[0; 32]);
    });
    b.data.truncate(63);
    refused(&b, &["tensor `last`", "32 bytes", "only 31"]);
}

#[test]
fn integers_of_any_width_are_read() {
    let b = with(|b| {
        b.entry(b"a.u8", 0, &[200]).entry(b"a.i8", 1, &[200]).entry(b"a.u16", 2, &[1, 2]);
        b.entry(b"a.i16", 3, &[0, 0x80]).entry(b"a.i32", 5, &(-7i32).to_le_bytes());
        b.entry(b"a.u64", 10, &u64::MAX.to_le_bytes()).entry(b"a.i64", 11, &i64::MIN.to_le_bytes());
        b.entry(b"a.f64", 12, &0.1f64.to_le_bytes()).list("a.bools", 7, 3, &[1, 0, 1]);
        b.list("a.i16s", 3, 2, &[0xFF, 0xFF, 1, 0]).list("a.f64s", 12, 1, &0.5f64.to_le_bytes());
    });
    let m = opened(&b).unwrap().metadata;
    let int = |key: &str| m.find_int::<i128>(key).unwrap().unwrap();
    assert_eq!(
        [int("a.u8"), int("a.i8"), int("a.u16"), int("a.i16"), int("a.i32")],
        [200, -56, 513, -32768, -7]
    );
    assert_eq!([int("a.u64"), int("a.i64")], [u64::MAX.into(), i64::MIN.into()]);
    assert_eq!(m.get("a.f64"), Some(&Value::Float(0.1)));
    assert_eq!(m.get("a.bools"), Some(&Value::Bools(vec![true, false, true])));
    assert_eq!(
        (m.ints("a.i16s").unwrap(), m.find_floats("a.f64s").unwrap().unwrap()),
        (&[-1, 1][..], &[0.5][..])
    );
}

#[test]
fn versions_and_magics_other_than_known_ones_are_refused() {
    for version in [0, 1, 4, 0xFFFF_0003] {
        refused(&with(|b| b.version = version), &["version"]);
    }
    assert!(opened(&with(|b| b.version = 2)).is_ok());
    let message = open_bytes(b"GGML0000".to_vec().into(), "x", &Registry::default()).unwrap_err().to_string();
    assert!(message.contains("starts with `GGUF`"), "{message}");
    refused(&Builder::new(), &["key `general.architecture`", "nothing"]);
}

#[test]
fn big_endian_files_give_the_same_numbers() {
    let numbers = [1.5f32, -2.0, 3.25e-3, 4e7, 0.0, -0.0, 7.0, 8.0];
    let file = |big_endian| {
        let mut b = Builder::new();
        b.big_endian = big_endian;
        b.text("general.architecture", "llama").u32("llama.block_count", 7);
        let f32s = numbers.map(|x| b.number(x.to_le_bytes())).concat();
        let half = b.number(0x3C00u16.to_le_bytes()); // 1.0
        let q8_0 = [&half[..], &[3u8; 32]].concat();
        let q4_k = [&half[..], &half, &[0x21; 140]].concat();
        let q6_k = [&[0x43; 208][..], &half].concat();
        b.tensor("output_norm.weight", &[8], 0, &f32s).tensor("output.weight", &[32], 8, &q8_0);
        b.tensor("token_embd.weight", &[256], 12, &q4_k).tensor("token_embd_norm.weight", &[256], 14, &q6_k);
        opened(&b).unwrap()
    };
    let (le, be) = (file(false), file(true));
    assert_eq!(le.metadata, be.metadata);
    for (name, tensor) in &le.tensors {
        assert_eq!(tensor.decode(), be.tensors[name].decode(), "{name}");
    }
    assert_eq!(be.tensors["norm"].decode(), numbers);
    let mut b = Builder::new();
    b.big_endian = true;
    b.text("general.architecture", "llama").tensor("t", &[256], 10, &[0; 84]);
    refused(&b, &["tensor `t`", "Q2_K", "byte order"]);
}

#[test]
fn published_vectors_of_both_byte_orders_agree() {
    let Some(shared) = nibble_testkit::shared_dir() else { return };
    let file = |name: &str| {
        let path = shared.join("vectors").join(name);
        open_files(&path, &Registry::default(), &OpenOptions::default()).unwrap().remove(0)
    };
    let (le, be) = (file("gguf_v3_le.gguf"), file("gguf_v3_be.gguf"));
    assert!(be.big_endian && !le.big_endian);
    assert_eq!(le.entries, be.entries);
    assert_eq!(le.get("test.u32"), Some(&Value::Int(0xDEAD_BEEF)));
    assert_eq!(le.get("test.u64"), Some(&Value::Int((1 << 63) + 1)));
    assert_eq!(le.get("test.str"), Some(&Value::Text("h\u{e9}llo".into())));
    assert_eq!(le.get("test.arr_i32"), Some(&Value::Ints(vec![1, -2, 3])));
    assert_eq!(le.get("test.arr_str"), Some(&Value::Texts(vec!["a".into(), String::new(), "\u{fc}".into()])));
    let decoded = |file: &GgufFile, name: &str| {
        let info = file.tensors.iter().find(|t| t.name == name).unwrap();
        file.tensor(info, &Registry::default()).unwrap().unwrap().decode()
    };
    for info in &be.tensors {
        assert_eq!(decoded(&le, &info.name), decoded(&be, &info.name), "{}", info.name);
    }
    let (exact, rounded) = (decoded(&le, "a.f32"), decoded(&le, "c.q8_0"));
    assert!(exact.iter().zip(&rounded).all(|(a, b)| (a - b).abs() < 0.05), "q8_0 is the f32 tensor, rounded");
}

/// Two tensors of 4096 weights of type 42, the second at `offset`.
fn type_42(offset: u64, len: usize) -> Builder {
    with(|b| {
        b.info(b"output_norm.weight", &[4096], 42, 0).info(b"output.weight", &[4096], 42, offset);
        // scale 1 and code 0 or 1 in either geometry: 34-byte blocks differ from 18-byte blocks
        b.data = [0x00, 0x3C].into_iter().chain([0x55; 32]).cycle().take(len).collect();
    })
}

#[test]
fn type_42_is_told_apart_by_offsets_and_length() {
    let legacy = opened(&type_42(1088, 2176)).unwrap();
    assert_eq!(legacy.tensors["head"].name(), "pq2_0");
    assert_eq!(legacy.tensors["head"].decode(), [0.0; 4096]);
    let upstream = opened(&type_42(1152, 2304)).unwrap();
    assert_eq!(upstream.tensors["head"].name(), "q2_0");
    refused(&type_42(1120, 2240), &["output_norm.weight", "fits neither"]);
    refused(&type_42(1088, 2144), &["output.weight", "1088 bytes", "only 1056"]);
    let truncated = with(|b| {
        b.tensor("output_norm.weight", &[4096], 42, &[0; 1120]);
    });
    refused(&truncated, &["output_norm.weight", "truncated"]);
    let b = with(|b| {
        b.tensor("output_norm.weight", &[128], 42, &[0; 36]);
    });
    assert_eq!(opened(&b).unwrap().tensors["norm"].name(), "q2_0", "34 bytes, padded, would fit 36 as well");
}

#[test]
fn an_ambiguous_type_42_needs_a_choice() {
    let b = with(|b| {
        b.tensor("output_norm.weight", &[128], 42, &[0; 64]);
    });
    refused(&b, &["output_norm.weight", "64", "128", "fits both"]);
    let dir = TempDir::new("format-type-42");
    let path = dir.write("ambiguous.gguf", b.build());
    for (type_42, name) in [(Type42::Blocks64, "q2_0"), (Type42::Blocks128, "pq2_0")] {
        let opened =
            open_with(&path, &Registry::default(), &OpenOptions { type_42, ..OpenOptions::default() })
                .unwrap();
        assert_eq!(opened.tensors["norm"].name(), name);
    }
}

#[test]
fn hyperparameters_are_checked_before_they_size_anything() {
    for layers in [0, 4097, u32::MAX] {
        refused(
            &with(|b| {
                b.u32("llama.block_count", layers);
            }),
            &["key `block_count`"],
        );
    }
    refused(
        &with(|b| {
            b.u32("llama.block_count", 2).u32("llama.nextn_predict_layers", 3);
        }),
        &["nextn"],
    );
    refused(
        &with(|b| {
            b.text("llama.block_count", "many");
        }),
        &["key `block_count`", "integer"],
    );
    let tokens = |b: &mut Builder| {
        let list = [b.string(b"a"), b.string(b"b")].concat();
        b.list("tokenizer.ggml.tokens", 8, 2, &list);
    };
    let short = with(|b| {
        tokens(b);
        b.list("tokenizer.ggml.scores", 6, 1, &[0; 4]);
    });
    refused(&short, &["key `tokenizer.ggml.scores`", "2 elements", "found 1"]);
    let past = with(|b| {
        tokens(b);
        b.u32("tokenizer.ggml.eos_token_id", 2);
    });
    refused(&past, &["key `tokenizer.ggml.eos_token_id`", "below 2", "found 2"]);
}

/// Three shards of one tensor each, with numbers as they are given.
fn shards(
    dir: &TempDir,
    number: [u16; 3],
    counts: [u16; 3],
    total: u32,
    names: [&str; 3],
) -> std::path::PathBuf {
    for i in 0..3 {
        let mut b = if i == 0 { Builder::llama() } else { Builder::new() };
        b.entry(b"split.no", 2, &number[i].to_le_bytes()).entry(b"split.count", 2, &counts[i].to_le_bytes());
        b.entry(b"split.tensors.count", 5, &total.to_le_bytes());
        b.tensor(names[i], &[8], 0, &[i as u8; 32]);
        dir.write(&format!("m-{:05}-of-00003.gguf", i + 1), b.build());
    }
    dir.file("m-00001-of-00003.gguf")
}

#[test]
fn shards_are_joined_and_must_belong_together() {
    let codecs = Registry::default();
    let names = ["token_embd.weight", "output.weight", "output_norm.weight"];
    let dir = TempDir::new("format-split");
    let first = shards(&dir, [0, 1, 2], [3; 3], 3, names);
    let model = open(&first, &codecs).unwrap();
    assert_eq!(model.tensors.keys().collect::<Vec<_>>(), ["embed", "head", "norm"]);
    assert_eq!(model.tensors["norm"].parts()[0], [2; 32][..]);
    assert_eq!(model.files.len(), 3);

    let refused = |path: &Path, word: &str| {
        let message = open(path, &codecs).unwrap_err().to_string();
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    };
    refused(&dir.file("m-00002-of-00003.gguf"), "open the first one");
    refused(&dir.write("renamed.gguf", std::fs::read(&first).unwrap()), "-00001-of-00003.gguf");
    std::fs::remove_file(dir.file("m-00003-of-00003.gguf")).unwrap();
    refused(&first, "m-00003-of-00003.gguf");
    refused(&shards(&dir, [0, 1, 1], [3; 3], 3, names), "shard 3 of 3");
    refused(&shards(&dir, [0, 1, 2], [3, 3, 4], 3, names), "shard 3 of 3");
    refused(&shards(&dir, [0, 1, 2], [3; 3], 4, names), "4 tensors");
    refused(&shards(&dir, [0, 1, 2], [3; 3], 3, [names[0], names[1], names[1]]), "two shards");
}

/// A small file with every kind of thing in it.
fn varied(big_endian: bool) -> Vec<u8> {
    let mut b = Builder::new();
    b.big_endian = big_endian;
    b.text("general.architecture", "qwen35")
        .u32("qwen35.block_count", 2)
        .u32("qwen35.attention.head_count", 2);
    b.u32("qwen35.embedding_length", 32).u32("qwen35.attention.sliding_window", 4);
    let tokens = [b.string(b"a"), b.string("\u{fc}".as_bytes())].concat();
    b.list("tokenizer.ggml.tokens", 8, 2, &tokens).list("tokenizer.ggml.scores", 6, 2, &[0; 8]);
    b.entry(b"x.bool", 7, &[1]).entry(b"x.f64", 12, &[1; 8]).list("x.i64s", 11, 2, &[7; 16]);
    b.tensor("token_embd.weight", &[32, 2], 8, &[1; 68]).tensor("blk.0.attn_q.weight", &[32, 2], 2, &[9; 36]);
    b.tensor("blk.1.ffn_gate_up_exps.weight", &[4, 2, 2], 0, &[3; 64]).tensor(
        "blk.0.ssm_a",
        &[3],
        0,
        &[5; 12],
    );
    if !big_endian {
        b.tensor("output.weight", &[128], 42, &[5; 36]);
    }
    b.build()
}

/// Whatever opens must also be readable to its last number.
fn survives(bytes: Vec<u8>) -> bool {
    match open_bytes(bytes.into(), "mutated", &Registry::default()) {
        Ok(model) => {
            model.tensors.values().fold(true, |_, tensor| tensor.decode().len() == tensor.shape().elements())
        }
        Err(error) => error.to_string().is_empty(),
    }
}

#[test]
fn no_changed_byte_and_no_cut_makes_the_reader_panic() {
    for file in [varied(false), varied(true)] {
        assert!(survives(file.clone()), "the file itself opens");
        let mut still_open = 0;
        for at in 0..file.len() {
            survives(file[..at].to_vec());
            for change in [0x01, 0x80, 0xFF, file[at]] {
                let mut changed = file.clone();
                changed[at] ^= change;
                still_open += usize::from(survives(changed));
            }
        }
        assert!(still_open > 100, "changed weights are not noticed, so most mutations reach the tensors");
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let mut changed = file.clone();
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(changed.len());
                changed[at] = rng.bits() as u8;
            }
            survives(changed);
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut rng = Rng::new(3);
    let mut bytes = |n: usize| (0..n).map(|_| rng.bits() as u8).collect::<Vec<u8>>();
    let (a, b, c) = (bytes(2 * 34), bytes(3 * 4), bytes(2 * 3 * 210));
    let entries = [
        Entry::new("general.architecture", "llama"),
        Entry::new("llama.block_count", 2u64),
        Entry::new("x.negative", -3i64),
        Entry::new("x.large", u64::MAX),
        Entry::new("x.float", 0.25),
        Entry::new("x.bool", true),
        Entry::new("x.ints", vec![-1i64, 2]),
        Entry::new("x.long_ints", vec![1i64 << 40]),
        Entry::new("x.floats", vec![0.5f32, 1.5]),
        Entry::new("x.bools", vec![true, false]),
        Entry::new("x.texts", vec!["a".to_owned(), String::new()]),
        Entry::new("general.alignment", 64u32),
    ];
    let tensors = || {
        vec![
            WriteTensor::new("token_embd.weight", [2, 32], codec("q8_0"), &a),
            WriteTensor::new("output_norm.weight", [3], codec("f32"), &b),
            WriteTensor::new("blk.0.ffn_up_exps.weight", [2, 3, 256], codec("q6_k"), &c),
        ]
    };
    let dir = TempDir::new("format-round-trip");
    let path = dir.file("model.gguf");
    write(&path, &entries, tensors()).unwrap();
    let file = open_files(&path, &Registry::default(), &OpenOptions::default()).unwrap().remove(0);
    assert_eq!(file.entries, entries);
    for (info, bytes) in file.tensors.iter().zip([&a, &b, &c]) {
        assert_eq!(file.raw(info), bytes[..], "{}", info.name);
        assert!(info.range.start.is_multiple_of(64));
    }
    let model = open(&path, &Registry::default()).unwrap();
    assert_eq!(model.tensors["layer.0.moe.up"].shape().dims(), [2, 3, 256]);
    let mut again = Vec::new();
    write_to(&mut again, &file.entries, tensors()).unwrap();
    assert_eq!(again, std::fs::read(&path).unwrap(), "entries keep their types, so a copy is the same file");
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let dir = TempDir::new("format-failed-write");
    let path = dir.file("model.gguf");
    for (bytes, found) in [(33, "found 33"), (35, "found more")] {
        let tensors = vec![WriteTensor::new("t", [32], codec("q8_0"), vec![0u8; bytes])];
        let message = write(&path, &[], tensors).unwrap_err().to_string();
        assert!(message.contains("tensor `t`") && message.contains(found), "{message}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    std::fs::write(&path, "old").unwrap();
    let broken = WriteTensor {
        data: Box::new(|_| Err(std::io::Error::other("the source vanished"))),
        ..WriteTensor::new("t", [32], codec("q8_0"), [])
    };
    assert!(write(&path, &[], vec![broken]).unwrap_err().to_string().contains("vanished"));
    assert_eq!(std::fs::read(&path).unwrap(), b"old", "the file that was there is untouched");
}

#[test]
fn other_paths_are_refused_with_what_was_found() {
    let dir = TempDir::new("format-other");
    let refused = |path: &Path, word: &str| {
        let message = open(path, &Registry::default()).unwrap_err().to_string();
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    };
    refused(dir.path(), "without config.json");
    refused(&dir.file("absent"), "absent");
    refused(&dir.write("empty", ""), "an empty file");
    refused(&dir.write("old.bin", "ggjt0000"), "ggjt");
    refused(&dir.write("model.safetensors", b"\x08\0\0\0\0\0\0\0{}      "), "directory it is in");
}

#[test]
fn keys_that_change_the_meaning_of_weights_are_not_passed_over() {
    let b = with(|b| {
        b.u32("prism.hadamard.version", 1);
    });
    refused(&b, &["key `prism.hadamard.transform`", "found nothing"]);
    let b = with(|b| {
        b.u32("general.quantization_version", 2).u32("llama.general.quantization_version", 3);
    });
    refused(&b, &["key `llama.general.quantization_version`", "twice"]);
}

#[test]
fn the_magnitude_of_yarn_is_one_number_however_the_file_says_it() {
    let magnitude = |keys: &[(&str, f32)]| {
        let b = with(|b| {
            b.u32("llama.context_length", 4096).text("llama.rope.scaling.type", "yarn");
            for (key, value) in keys {
                b.entry(format!("llama.rope.scaling.{key}").as_bytes(), 6, &value.to_le_bytes());
            }
        });
        let m = opened(&b).unwrap().metadata;
        assert_eq!(m.usize("rope.scaling.original_context_length").unwrap(), 4096);
        format!("{:.6}", m.f32("rope.scaling.attn_factor").unwrap())
    };
    assert_eq!(magnitude(&[("factor", 4.0)]), "1.138629");
    assert_eq!(magnitude(&[("factor", 4.0), ("attn_factor", 0.5)]), "0.569315");
    assert_eq!(magnitude(&[("factor", 4.0), ("yarn_attn_factor", 1.0)]), "1.000000");
    assert_eq!(magnitude(&[("factor", 4.0), ("yarn_log_multiplier", 1.0)]), "1.000000");
}

#[test]
fn a_tokenizer_may_be_json_inside_the_file() {
    let b = with(|b| {
        b.text("tokenizer.huggingface.json", "{}");
    });
    let source = opened(&b).unwrap().tokenizer;
    assert!(matches!(&source, TokenizerSource::Json { tokenizer, .. } if tokenizer == "{}"), "{source:?}");
}
