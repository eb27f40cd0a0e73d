//! llama.cpp's file types, which users know by name.
//!
//! The rules are facts of llama.cpp's `src/llama-quant.cpp` (version 0.6.0); `golden/recipes.py` asks its `llama-quantize` what
//! each tensor of many models becomes, and a test compares. Not carried over: exceptions for three architectures (falcon,
//! glm5-next, bailingmoe3), and the file types of encodings that can only be read.

use super::recipe::{Part, Rule, When};
use crate::{Error, Kind};

/// A file type.
pub(super) struct Row {
    /// Its names, the usual one first.
    pub names: &'static [&'static str],
    /// Its number in `general.file_type`.
    pub number: u32,
    /// What matrices get for which no rule holds.
    pub base: &'static str,
    pub rules: &'static [Rule],
    /// Whether it is refused without column weights.
    pub needs_weights: bool,
}

/// Numbers of files whose matrices are all in one encoding, but for the output.
pub(super) const FILE_TYPES: &[(&str, u32)] = &[
    ("f32", 0),
    ("f16", 1),
    ("q4_0", 2),
    ("q4_1", 3),
    ("q8_0", 7),
    ("q5_0", 8),
    ("q5_1", 9),
    ("q2_k", 10),
    ("q3_k", 11),
    ("q4_k", 14),
    ("q5_k", 16),
    ("q6_k", 18),
    ("iq4_nl", 25),
    ("iq4_xs", 30),
    ("bf16", 32),
    ("tq1_0", 36),
    ("tq2_0", 37),
    ("mxfp4", 38),
    ("nvfp4", 39),
    ("q1_0", 40),
    ("q2_0", 41),
];

const fn row(names: &'static [&'static str], number: u32, base: &'static str, rules: &'static [Rule]) -> Row {
    Row { names, number, base, rules, needs_weights: false }
}

const fn rule(part: Part, when: &'static [When], to: &'static str) -> Rule {
    Rule { part: Some(part), when, to }
}

use Part::{AttentionOutput, Down, Embedding, Head, Keys, Values};
use When::{EndsAndThirds, Experts, First, FirstPart, Large, SharedKeys, Stack, Weights};

const HEAD_Q6: Rule = rule(Head, &[], "q6_k");
const VALUES_OF_8: Rule = rule(Values, &[Experts(8)], "q8_0");
const KEYS_OF_8: Rule = rule(Keys, &[Experts(8)], "q8_0");
const OUTPUT_OF_8: Rule = rule(AttentionOutput, &[Experts(8)], "q5_k");
const VALUES_OF_70B: Rule = rule(Values, &[Large], "q5_k");
const EMBEDDING_Q4: Rule = rule(Embedding, &[], "q4_k");

/// For one encoding throughout: only the output gets more bits.
pub(super) const HEAD: &[Rule] = &[HEAD_Q6];

const PLAIN: &[Rule] = &[HEAD_Q6, VALUES_OF_8, KEYS_OF_8];
const TERNARY: &[Rule] = &[HEAD_Q6, EMBEDDING_Q4, VALUES_OF_8, KEYS_OF_8];
const IQ4: &[Rule] = &[
    HEAD_Q6,
    VALUES_OF_8,
    rule(Values, &[SharedKeys], "q5_k"),
    KEYS_OF_8,
    rule(Down, &[FirstPart(8), Weights(false)], "q5_k"),
    OUTPUT_OF_8,
];

const ROWS: &[Row] = &[
    row(&["f32"], 0, "f32", &[]),
    row(&["f16"], 1, "f16", &[]),
    row(&["bf16"], 32, "bf16", &[]),
    row(&["q8_0"], 7, "q8_0", &[]),
    row(&["q6_k"], 18, "q6_k", PLAIN),
    row(
        &["q5_k_m", "q5_k"],
        17,
        "q5_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            rule(Values, &[EndsAndThirds], "q6_k"),
            KEYS_OF_8,
            rule(Down, &[EndsAndThirds], "q6_k"),
        ],
    ),
    row(&["q5_k_s"], 16, "q5_k", PLAIN),
    row(&["q5_1"], 9, "q5_1", PLAIN),
    row(
        &["q5_0"],
        8,
        "q5_0",
        &[HEAD_Q6, VALUES_OF_8, KEYS_OF_8, rule(Down, &[FirstPart(8), Weights(true)], "q5_1")],
    ),
    row(
        &["q4_k_m", "q4_k"],
        15,
        "q4_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            rule(Values, &[EndsAndThirds], "q6_k"),
            VALUES_OF_70B,
            KEYS_OF_8,
            rule(Down, &[EndsAndThirds], "q6_k"),
            OUTPUT_OF_8,
        ],
    ),
    row(
        &["q4_k_s"],
        14,
        "q4_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            VALUES_OF_70B,
            rule(Values, &[First(4)], "q5_k"),
            KEYS_OF_8,
            rule(Down, &[FirstPart(8)], "q5_k"),
            OUTPUT_OF_8,
        ],
    ),
    row(&["q4_1"], 3, "q4_1", PLAIN),
    row(
        &["q4_0"],
        2,
        "q4_0",
        &[HEAD_Q6, VALUES_OF_8, KEYS_OF_8, rule(Down, &[FirstPart(8), Weights(true)], "q4_1")],
    ),
    row(&["iq4_nl"], 25, "iq4_nl", IQ4),
    row(&["iq4_xs"], 30, "iq4_xs", IQ4),
    row(
        &["q3_k_l"],
        13,
        "q3_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            rule(Values, &[], "q5_k"),
            KEYS_OF_8,
            rule(Down, &[], "q5_k"),
            rule(AttentionOutput, &[Experts(8)], "q3_k"),
            rule(AttentionOutput, &[], "q5_k"),
        ],
    ),
    row(
        &["q3_k_m", "q3_k"],
        12,
        "q3_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            VALUES_OF_70B,
            rule(Values, &[First(2)], "q5_k"),
            rule(Values, &[], "q4_k"),
            KEYS_OF_8,
            rule(Down, &[FirstPart(16)], "q5_k"),
            rule(Down, &[], "q4_k"),
            OUTPUT_OF_8,
            rule(AttentionOutput, &[], "q4_k"),
        ],
    ),
    row(&["q3_k_s"], 11, "q3_k", &[HEAD_Q6, VALUES_OF_8, VALUES_OF_70B, KEYS_OF_8, OUTPUT_OF_8]),
    row(
        &["q2_k"],
        10,
        "q2_k",
        &[
            HEAD_Q6,
            VALUES_OF_8,
            VALUES_OF_70B,
            rule(Values, &[SharedKeys], "q4_k"),
            rule(Values, &[], "q3_k"),
            KEYS_OF_8,
            rule(Down, &[], "q3_k"),
            OUTPUT_OF_8,
            rule(AttentionOutput, &[], "q3_k"),
        ],
    ),
    Row {
        needs_weights: true,
        ..row(
            &["q2_k_s"],
            21,
            "q2_k",
            &[
                HEAD_Q6,
                VALUES_OF_8,
                rule(Values, &[Large, SharedKeys], "q5_k"),
                rule(Values, &[SharedKeys], "q4_k"),
                KEYS_OF_8,
                rule(Down, &[FirstPart(8)], "q4_k"),
            ],
        )
    },
    row(&["q2_0"], 41, "q2_0", TERNARY),
    row(&["tq2_0"], 37, "tq2_0", TERNARY),
    row(&["tq1_0"], 36, "tq1_0", TERNARY),
    row(&["q1_0"], 40, "q1_0", PLAIN),
    row(
        &["mxfp4_moe"],
        38,
        "q8_0",
        &[rule(Head, &[], "q8_0"), Rule { part: None, when: &[Stack], to: "mxfp4" }],
    ),
];

impl Row {
    /// The file type of that name.
    ///
    /// # Errors
    /// [`Kind::Usage`] if there is none.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        let lower = name.to_ascii_lowercase();
        ROWS.iter().find(|row| row.names.contains(&lower.as_str())).ok_or_else(|| {
            let known: Vec<_> = ROWS.iter().map(|row| row.names[0]).collect();
            let what = format!("file type: expected one of {}, found `{name}`", known.join(", "));
            Error::new(Kind::Usage, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            order::Order,
            plan::plan,
            recipe::{Facts, Recipe, Target},
            rules::Rules,
            source::Tensor,
        },
        *,
    };
    use nibble_format::gguf::Entry;
    use nibble_quant::{Encoded, Registry, codec};
    use nibble_tensor::Shape;
    use nibble_testkit::workspace_root;
    use serde_json::{Map, Value as Json};
    use std::collections::HashMap;

    fn object(json: &Json) -> &Map<String, Json> {
        json.as_object().unwrap()
    }

    /// The tensors of a model, with zeros for numbers.
    fn tensors(model: &Json) -> Vec<Tensor> {
        let layers = model["keys"]["block_count"].as_u64().unwrap();
        let outer = object(&model["outer"]).iter().map(|(name, shape)| (name.clone(), shape));
        let inner = (0..layers).flat_map(|n| {
            object(&model["layer"]).iter().map(move |(name, shape)| (format!("blk.{n}.{name}"), shape))
        });
        let tensor = |(name, shape): (String, &Json)| {
            let dims: Vec<_> =
                shape.as_array().unwrap().iter().rev().map(|n| n.as_u64().unwrap() as usize).collect();
            let shape = Shape::new(&dims).unwrap();
            let matrix = dims.len() > 1 && !name.contains("ffn_gate_inp");
            let from = codec(if matrix { "f16" } else { "f32" });
            let data = Encoded::encode(&name, shape, from, &vec![0.0; shape.elements()], None).unwrap();
            Tensor { name, data, order: Order::default(), keep: true }
        };
        outer.chain(inner).map(tensor).collect()
    }

    /// What llama.cpp makes of each matrix; the base encoding for those that the record does not name.
    fn expected(record: &Json) -> (&str, HashMap<String, &str>) {
        let mut found = HashMap::new();
        for (to, names) in object(record).iter().filter(|(key, _)| *key != "base") {
            for (name, layers) in object(names) {
                for run in layers.as_str().unwrap().split_whitespace() {
                    let (first, last) = run.split_once('-').unwrap_or((run, run));
                    for n in first.parse::<usize>().unwrap()..=last.parse().unwrap() {
                        found.insert(name.replace("blk.N.", &format!("blk.{n}.")), to.as_str());
                    }
                }
                if !name.contains("blk.N.") {
                    found.insert(name.clone(), to);
                }
            }
        }
        (record["base"].as_str().unwrap(), found)
    }

    #[test]
    fn every_file_type_gives_each_tensor_what_llama_cpp_gives_it() {
        let golden = std::fs::read_to_string(workspace_root().join("golden/recipes.json")).unwrap();
        let golden: Json = serde_json::from_str(&golden).unwrap();
        let (codecs, mut checked) = (Registry::default(), 0);
        for (name, model) in object(&golden["models"]) {
            let architecture = model["architecture"].as_str().unwrap();
            let mut entries = vec![Entry::new("general.architecture", architecture)];
            for (key, value) in object(&model["keys"]) {
                let int = value.as_u64().map(|n| Entry::new(format!("{architecture}.{key}"), n as usize));
                entries.extend(int);
            }
            let tensors = tensors(model);
            for (kind, record) in object(&golden["types"][name]) {
                let (kind, weights) = match kind.strip_suffix("+imatrix") {
                    Some(kind) => (kind, true),
                    None => (kind.as_str(), false),
                };
                let recipe = Recipe::find(&Target::FileType(kind.into()), weights, &codecs).unwrap();
                let facts = Facts::new(&entries, weights);
                let jobs = plan(&tensors, &facts, &recipe, &Rules::default(), &codecs).unwrap();
                let (base, expected) = expected(record);
                for job in &jobs {
                    let name = &job.tensor.name;
                    let from = job.tensor.data.name();
                    let to = if from == "f32" { "f32" } else { expected.get(name).unwrap_or(&base) };
                    let found = job.codec.spec().name;
                    assert_eq!(found, to, "{architecture} {kind} (weights: {weights}): {name}");
                }
                checked += jobs.len();
            }
        }
        assert!(checked > 50_000, "{checked}");
    }

    #[test]
    fn a_file_type_is_found_by_any_of_its_names() {
        assert_eq!(Row::find("Q4_K").unwrap().number, Row::find("q4_k_m").unwrap().number);
        let error = Row::find("iq2_xs").err().unwrap().to_string();
        assert!(
            error.starts_with("file type: expected one of f32, f16") && error.ends_with("found `iq2_xs`")
        );
    }
}
