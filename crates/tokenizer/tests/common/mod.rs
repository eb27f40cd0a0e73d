//! Vocabularies of real models, read from GGUF files with just enough of a reader for trusted test data.
#![allow(dead_code)] // each test file uses its own part

use std::collections::HashMap;
use std::path::PathBuf;

use nibble_tokenizer::{ModelKind, TokenType, Vocab};

/// A metadata value.
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Value>),
}

/// Reads little-endian values one after another.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_at(N);
        self.0 = rest;
        head.try_into().unwrap()
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    fn text(&mut self) -> String {
        let len = self.u64() as usize;
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8(head.to_vec()).unwrap()
    }
    fn value(&mut self, kind: u32) -> Value {
        match kind {
            0 => Value::Int(self.take::<1>()[0].into()),
            1 => Value::Int((self.take::<1>()[0] as i8).into()),
            2 => Value::Int(u16::from_le_bytes(self.take()).into()),
            3 => Value::Int(i16::from_le_bytes(self.take()).into()),
            4 => Value::Int(self.u32().into()),
            5 => Value::Int((self.u32() as i32).into()),
            6 => Value::Float(f32::from_le_bytes(self.take()).into()),
            7 => Value::Bool(self.take::<1>()[0] != 0),
            8 => Value::Text(self.text()),
            9 => {
                let (kind, len) = (self.u32(), self.u64());
                Value::List((0..len).map(|_| self.value(kind)).collect())
            }
            10 | 11 => Value::Int(self.u64() as i64),
            12 => Value::Float(f64::from_le_bytes(self.take())),
            other => panic!("metadata type {other}"),
        }
    }
}

/// All metadata of a GGUF file.
pub fn metadata(bytes: &[u8]) -> HashMap<String, Value> {
    assert_eq!(&bytes[..4], b"GGUF");
    let mut reader = Reader(&bytes[16..]);
    let count = reader.u64();
    let entry = |_| {
        let key = reader.text();
        let kind = reader.u32();
        (key, reader.value(kind))
    };
    (0..count).map(entry).collect()
}

/// The vocabulary that the metadata describes.
pub fn vocab(mut metadata: HashMap<String, Value>) -> Vocab {
    let mut take = |key: &str| metadata.remove(&format!("tokenizer.ggml.{key}"));
    let Some(Value::Text(model)) = take("model") else { panic!("no model") };
    let mut vocab = Vocab::new(ModelKind::from_gguf(&model).unwrap(), texts(take("tokens")));
    vocab.merges = texts(take("merges"));
    if let Some(Value::Text(pre)) = take("pre") {
        vocab.pre = pre;
    }
    if let Some(Value::List(list)) = take("scores") {
        vocab.scores =
            list.iter().map(|v| if let Value::Float(x) = v { *x as f32 } else { panic!() }).collect();
    }
    if let Some(Value::List(list)) = take("token_type") {
        let kind = |v: &Value| if let Value::Int(n) = v { TokenType::from_gguf(*n as i32) } else { None };
        vocab.types = list.iter().map(|v| kind(v).unwrap()).collect();
    }
    let mut id = |key| if let Some(Value::Int(id)) = take(key) { Some(id as u32) } else { None };
    vocab.bos = id("bos_token_id");
    vocab.eos = id("eos_token_id");
    vocab.eot = id("eot_token_id");
    vocab.unk = id("unknown_token_id");
    vocab.sep = id("seperator_token_id");
    vocab.pad = id("padding_token_id");
    vocab.cls = id("cls_token_id");
    vocab.mask = id("mask_token_id");
    let mut flag = |key| if let Some(Value::Bool(b)) = take(key) { Some(b) } else { None };
    vocab.add_bos = flag("add_bos_token");
    vocab.add_eos = flag("add_eos_token");
    vocab.add_space_prefix = flag("add_space_prefix");
    vocab
}

fn texts(value: Option<Value>) -> Vec<String> {
    let Some(Value::List(list)) = value else { return Vec::new() };
    list.into_iter().map(|v| if let Value::Text(text) = v { text } else { panic!("not a text") }).collect()
}

/// A file below the test data folder; says so when it is absent.
pub fn test_data(path: &str) -> Option<PathBuf> {
    let path = nibble_testkit::test_data_dir().join(path);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("SKIPPED: no {} (cargo xtask fetch)", path.display());
    None
}

/// The vocabulary in `vocab/ggml-vocab-NAME.gguf`, if it is there.
pub fn real_vocab(name: &str) -> Option<Vocab> {
    let path = test_data(&format!("vocab/ggml-vocab-{name}.gguf"))?;
    Some(vocab(metadata(&std::fs::read(path).unwrap())))
}

/// The texts and ids that go with a vocabulary: no special tokens are added or read.
pub fn vectors(name: &str) -> Option<Vec<(String, Vec<u32>)>> {
    let read = |kind: &str| {
        Some(std::fs::read(test_data(&format!("vocab/ggml-vocab-{name}.gguf.{kind}"))?).unwrap())
    };
    let texts = String::from_utf8(read("inp")?).unwrap();
    let ids = String::from_utf8(read("out")?).unwrap();
    let ids = ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect());
    let texts: Vec<&str> = texts.split_terminator("\n__ggml_vocab_test__\n").collect();
    let ids: Vec<Vec<u32>> = ids.collect();
    assert_eq!(texts.len(), ids.len(), "{name}: texts and id lines");
    Some(texts.into_iter().map(str::to_owned).zip(ids).collect())
}

/// The vocabularies that vectors exist for.
pub const VECTOR_SETS: [&str; 15] = [
    "llama-bpe",
    "llama-spm",
    "qwen2",
    "qwen35",
    "gemma-4",
    "phi-3",
    "deepseek-llm",
    "deepseek-coder",
    "command-r",
    "gpt-2",
    "falcon",
    "mpt",
    "refact",
    "starcoder",
    "bert-bge",
];
