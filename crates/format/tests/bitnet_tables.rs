//! BitNet's TL1 and TL2: which files are taken for them, which tiles are known, and what is refused. That they mean what
//! they must is in `vectors.rs` and, for a whole model, in `backend-cpu/tests/tiny_llama.rs`.

use nibble_format::{Checkpoint, Error, OpenOptions, open_bytes, open_with};
use nibble_quant::Registry;
use nibble_testkit::{TempDir, gguf::Builder};

/// A file of matrices `(rows, columns)` whose codes are `byte`.
fn file(matrices: &[(u64, u64)], id: u32, byte: u8, factor: f32) -> Builder {
    let mut b = Builder::llama();
    for (layer, &(rows, columns)) in matrices.iter().enumerate() {
        let len = match id {
            38 => rows * columns / 4,
            _ => (columns - 256) * rows / 3 * 5 / 8 + 64 * rows,
        };
        let name = format!("blk.{layer}.ffn_up.weight");
        b.tensor(&name, &[columns, rows], id, &vec![byte; len as usize]);
        b.tensor(&format!("{name}_scale"), &[1], 0, &factor.to_le_bytes());
    }
    b
}

fn opened(b: &Builder) -> Result<Checkpoint, Error> {
    open_bytes(b.build().into(), "test.gguf", &Registry::default())
}

fn refused<T>(result: Result<T, Error>, words: &[&str]) {
    let message = result.err().unwrap_or_else(|| panic!("{words:?} was read")).to_string();
    assert!(words.iter().all(|word| message.contains(word)), "{message:?} does not say {words:?}");
}

/// Opens it with a tiling of its matrix beside it.
fn beside(b: &Builder, ini: &str, unpack_budget: Option<u64>) -> Result<Checkpoint, Error> {
    let dir = TempDir::new(&format!("bitnet-tables-{}", ini.len() + b.data.len()));
    dir.write("kernel_config.ini", ini);
    let options = OpenOptions { unpack_budget, ..OpenOptions::default() };
    open_with(&dir.write("model.gguf", b.build()), &Registry::default(), &options)
}

fn tiles(numbers: [usize; 5]) -> String {
    let lines = ["m", "k", "bm", "bk", "bmm"].iter().zip(numbers);
    lines.fold("[Kernels_0]\n".into(), |text, (key, number)| format!("{text}{key} = {number}\n"))
}

#[test]
fn the_shapes_of_published_models_need_nothing_beside_them() {
    let mut b = file(&[(1536, 1536)], 38, 0x44, 0.5);
    // Tiles of 128 x 64, strips of 64, steps of 4 columns: step 1, second sixteen rows, the second of them.
    b.data[64 + 16 + 1] = 0x08;
    let numbers = opened(&b).unwrap().tensors["layer.0.ffn.up"].decode();
    let found: Vec<_> = numbers.iter().enumerate().filter(|(_, x)| **x != 0.0).collect();
    let at = |column: usize| 17 * 1536 + column;
    assert_eq!(found, [(at(4), &-1.0), (at(5), &-1.0), (at(6), &1.0), (at(7), &1.0)]);
    for id in [39, 42] {
        let c = opened(&file(&[(1536, 4096), (4096, 1536), (1536, 1536)], id, 0x00, 0.5)).unwrap();
        assert_eq!(c.tensors["layer.2.ffn.up.scale"].decode(), [0.5]);
    }
}

#[test]
fn shapes_that_no_published_model_has_need_their_tiles() {
    let words = ["blk.0.ffn_up.weight", "tile sizes", "TL1", "64 x 256", "kernel_config.ini"];
    refused(opened(&file(&[(64, 256)], 38, 0x44, 1.0)), &words);
    // Each is in a published model, but in none are both.
    let two = file(&[(1536, 1536), (3200, 3200)], 38, 0x44, 1.0);
    refused(opened(&two), &["blk.0.ffn_up.weight", "1536 x 1536"]);
    let one = file(&[(64, 256)], 38, 0x44, 1.0);
    beside(&one, &tiles([64, 256, 64, 128, 32]), None).unwrap();
    refused(beside(&one, &tiles([64, 512, 64, 128, 32]), None), &["64 x 256", "kernel_config.ini"]);
    refused(beside(&one, "[k]\nm = 64\nk = 256\n", None), &["kernel_config.ini", "section `k`", "`bm`"]);
    // A tile that does not divide, a strip that does not, and one that is not made.
    for wrong in [[48, 128, 16], [64, 96, 32], [32, 128, 64], [64, 128, 16]] {
        let ini = tiles([64, 256, wrong[0], wrong[1], wrong[2]]);
        refused(
            beside(&one, &ini, None),
            &["blk.0.ffn_up.weight", "expected tiles of TL1 that fit 64 x 256"],
        );
    }
    let triples = file(&[(64, 320)], 39, 0, 1.0);
    beside(&triples, &tiles([64, 320, 64, 96, 32]), None).unwrap();
    for wrong in [[64, 96, 64], [64, 80, 32], [64, 120, 32], [64, 768, 32]] {
        let ini = tiles([64, 320, wrong[0], wrong[1], wrong[2]]);
        refused(beside(&triples, &ini, None), &["expected tiles of TL2 that fit 64 x 320"]);
    }
}

#[test]
fn what_is_wrong_with_a_table_is_told() {
    let shape = [(1536, 1536)];
    refused(opened(&file(&shape, 38, 0x49, 1.0)), &["ffn_up", "codes of pairs from 0 to 8, found 9"]);
    refused(opened(&file(&shape, 39, 0x0E, 1.0)), &["ffn_up", "codes of triples from 0 to 13, found 14"]);
    for factor in [0.0, -1.0, f32::NAN] {
        refused(opened(&file(&shape, 38, 0x44, factor)), &["ffn_up.weight", "a factor above 0"]);
    }
    let mut b = file(&shape, 38, 0x44, 1.0);
    b.data.truncate(1000);
    refused(opened(&b), &["ffn_up.weight", "truncated"]);
    let budget = beside(&file(&[(64, 256)], 38, 0x44, 1.0), &tiles([64, 256, 64, 128, 32]), Some(1000));
    refused(budget, &["memory", "1 MiB are needed"]);
    let mut b = Builder::llama();
    b.tensor("t", &[255, 8], 39, &[0; 900]).tensor("t_scale", &[1], 0, &1f32.to_le_bytes());
    refused(opened(&b), &["tensor `t`", "at least 256 columns"]);
    let mut b = Builder::new();
    b.big_endian = true;
    b.text("general.architecture", "llama");
    b.tensor("t", &[256, 64], 38, &[0; 4096]).tensor("t_scale", &[1], 0, &1f32.to_be_bytes());
    refused(opened(&b), &["tensor `t`", "TL1", "big-endian"]);
}

#[test]
fn without_a_factor_beside_them_the_types_are_others() {
    let mut b = Builder::llama();
    b.tensor("blk.0.ffn_up.weight", &[1536, 1536], 38, &[0; 1536 * 1536 / 4]);
    refused(opened(&b), &["tensor type 38", "TL1"]);
    for (id, name) in [(39, "mxfp4"), (42, "q2_0")] {
        let codec = nibble_quant::codec(name).spec();
        let mut b = Builder::llama();
        b.tensor("output.weight", &[256, 2], id, &vec![0; 512 / codec.block_len * codec.block_bytes]);
        assert_eq!(opened(&b).unwrap().tensors["head"].name(), name);
    }
}
