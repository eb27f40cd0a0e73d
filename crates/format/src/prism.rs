//! Prism's activation transform: matrices that are stored rotated, and the keys that say so.
//!
//! For a folded matrix `W'` the result is `W' * H(signs * x)`, with H the Walsh-Hadamard transform of blocks of inputs,
//! and for a folded embedding a token's row is `signs * H(z)`. A file without the keys is not rotated; one with keys that
//! are not understood must be refused, because nothing in its outputs shows that the transform is missing.
//! Source: PrismML-Eng/llama.cpp, `src/llama-model.cpp`.

use crate::{
    Checkpoint, Error, Metadata, Problem,
    names::{self, Meaning},
};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use std::collections::BTreeMap;

const PREFIX: &str = "prism.hadamard.";

/// Architectures that are known to be folded.
const ARCHITECTURES: &[&str] = &["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next"];

/// The contract of a file.
pub(crate) struct Prism {
    block: usize,
    /// Signs by width of the input; every width without signs if there are none at all.
    signs: Option<BTreeMap<usize, Vec<f32>>>,
    weights: Vec<String>,
    inverse: Vec<String>,
    grouped: bool,
    tied: bool,
}

impl Prism {
    /// Takes the contract out of a file's keys, if it has one.
    ///
    /// # Errors
    /// If a key is missing, unknown, or says what is not known.
    pub fn take(m: &mut Metadata) -> Result<Option<Self>, Error> {
        let keys: Vec<String> = m.values.keys().filter(|key| key.starts_with(PREFIX)).cloned().collect();
        let Some(first) = keys.first() else { return Ok(None) };
        const KNOWN: &[&str] = &[
            "version",
            "block_size",
            "transform",
            "axis",
            "sign_mode",
            "sign_widths",
            "sign_values",
            "weight_names",
            "inverse_weight_names",
            "gdn_v_grouped",
            "tied_output",
        ];
        if let Some(key) = keys.iter().find(|key| !KNOWN.contains(&&key[PREFIX.len()..])) {
            return Err(Problem::Unsupported("not a part of the rotation that is known".into())
                .at(format!("key `{key}`")));
        }
        let key = |name: &str| format!("{PREFIX}{name}");
        let Some(version) = m.find_int::<u32>(&key("version"))? else {
            let missing = Problem::Missing(format!("key `{}` beside it", key("version")));
            return Err(missing.at(format!("key `{first}`")));
        };
        let tied = m.find_bool(&key("tied_output"))?.unwrap_or(false);
        if !(1..=2).contains(&version) || tied != (version == 2) {
            let what = format!("rotation of version {version} with tied_output {tied} is not supported");
            return Err(Problem::Unsupported(what).at(format!("key `{}`", key("version"))));
        }
        for (name, expected) in
            [("transform", "normalized-sylvester-walsh-hadamard"), ("axis", "input-last-dimension")]
        {
            match m.find_text(&key(name))? {
                Some(found) if found == expected => {}
                found => {
                    let found = found.unwrap_or("nothing").to_owned();
                    return Err(
                        Problem::expected(format!("`{expected}`"), found).at(format!("key `{}`", key(name)))
                    );
                }
            }
        }
        let block = m.usize(&key("block_size"))?;
        if !block.is_power_of_two() || block > 1 << 20 {
            return Err(Problem::expected("a power of two", block).at(format!("key `{}`", key("block_size"))));
        }
        let names = |name: &str| Ok::<_, Error>(m.find_texts(&key(name))?.unwrap_or_default().to_vec());
        let prism = Self {
            block,
            signs: signs(m, block)?,
            weights: names("weight_names")?,
            inverse: names("inverse_weight_names")?,
            grouped: m.find_bool(&key("gdn_v_grouped"))?.unwrap_or(false),
            tied,
        };
        if prism.weights.is_empty() {
            return Err(Problem::expected("the names of rotated weights", "none")
                .at(format!("key `{}`", key("weight_names"))));
        }
        if prism.inverse.iter().any(|name| name != "token_embd.weight") {
            let found = prism.inverse.join(", ");
            let place = format!("key `{}`", key("inverse_weight_names"));
            return Err(Problem::expected("only token_embd.weight", found).at(place));
        }
        keys.iter().for_each(|key| drop(m.values.remove(key)));
        m.set("rotation.block_size", block);
        Ok(Some(prism))
    }

    /// Gives the rotated matrices of a checkpoint what belongs to them.
    ///
    /// # Errors
    /// If one of them is not there or has a width without signs.
    pub fn apply(&self, checkpoint: &mut Checkpoint, m: &Metadata) -> Result<(), Error> {
        let architecture = checkpoint.architecture.clone();
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            let what = format!("rotated weights of the architecture {architecture} are not supported");
            return Err(Problem::Unsupported(what).at("key `general.architecture`"));
        }
        for name in &self.weights {
            let place = || format!("rotated tensor `{name}`");
            let canonical =
                match names::from_gguf(name, &architecture, m.usize_or("block_count", usize::MAX)?) {
                    Meaning::Weight(canonical) if name.ends_with(".weight") => canonical,
                    _ => return Err(Problem::expected("a weight of the model", "another name").at(place())),
                };
            let width = self.width(checkpoint, &canonical).map_err(|p| p.at(place()))?;
            if self.grouped && canonical.ends_with(".delta.out") {
                let order = order(m, width)?;
                insert(checkpoint, format!("{canonical}.order"), name, &order)?;
            }
            let signs = self.signs_of(width).map_err(|p| p.at(place()))?;
            insert(checkpoint, format!("{canonical}.rotate"), name, &signs)?;
        }
        for name in &self.inverse {
            let width =
                self.width(checkpoint, "embed").map_err(|p| p.at(format!("rotated tensor `{name}`")))?;
            let signs = self.signs_of(width).map_err(|p| p.at(format!("rotated tensor `{name}`")))?;
            insert(checkpoint, "embed.unrotate".into(), name, &signs)?;
            match (self.tied, checkpoint.tensors.contains_key("head")) {
                (true, false) => insert(checkpoint, "embed.rotate".into(), name, &signs)?,
                (false, true) => {}
                (tied, head) => {
                    let found = format!("tied_output {tied} with{} a head", if head { "" } else { "out" });
                    return Err(Problem::expected("a head, or one that is tied", found)
                        .at(format!("rotated tensor `{name}`")));
                }
            }
        }
        if self.tied && self.inverse.is_empty() {
            return Err(Problem::expected("token_embd.weight in inverse_weight_names", "nothing")
                .at("key `prism.hadamard.tied_output`"));
        }
        Ok(())
    }

    fn width(&self, checkpoint: &Checkpoint, canonical: &str) -> Result<usize, Problem> {
        let tensor = checkpoint.tensors.get(canonical);
        let width = tensor.ok_or_else(|| Problem::Missing("a tensor of that name".into()))?.shape().row_len();
        match width.is_multiple_of(self.block) {
            true => Ok(width),
            false => Err(Problem::expected(format!("rows in multiples of {}", self.block), width)),
        }
    }

    fn signs_of(&self, width: usize) -> Result<Vec<f32>, Problem> {
        match &self.signs {
            None => Ok(vec![1.0; width]),
            Some(signs) => {
                let missing = || Problem::Missing(format!("signs for rows of {width} in `sign_widths`"));
                signs.get(&width).cloned().ok_or_else(missing)
            }
        }
    }
}

/// The sign vectors by their width, `None` if all signs are plus.
fn signs(m: &Metadata, block: usize) -> Result<Option<BTreeMap<usize, Vec<f32>>>, Error> {
    let place = |name: &str| format!("key `{PREFIX}{name}`");
    match m.find_text(&format!("{PREFIX}sign_mode"))? {
        Some("identity") => return Ok(None),
        Some("explicit") => {}
        found => {
            let found = found.unwrap_or("nothing").to_owned();
            return Err(Problem::expected("`identity` or `explicit`", found).at(place("sign_mode")));
        }
    }
    let list = |name: &str| Ok::<_, Error>(m.find_ints(&format!("{PREFIX}{name}"))?.unwrap_or_default());
    let (widths, mut values) = (list("sign_widths")?, list("sign_values")?);
    let mut signs = BTreeMap::new();
    for &width in widths {
        let wide =
            usize::try_from(width).ok().filter(|&w| w > 0 && w.is_multiple_of(block) && w <= values.len());
        let Some(wide) = wide.filter(|wide| !signs.contains_key(wide)) else {
            let expected = format!("different multiples of {block} that have values");
            return Err(Problem::expected(expected, width).at(place("sign_widths")));
        };
        let (own, rest) = values.split_at(wide);
        if let Some(other) = own.iter().find(|&&sign| sign != 1 && sign != -1) {
            return Err(Problem::expected("1 or -1", other).at(place("sign_values")));
        }
        signs.insert(wide, own.iter().map(|&sign| sign as f32).collect());
        values = rest;
    }
    if signs.is_empty() || !values.is_empty() {
        let found = format!("{} too many", values.len());
        return Err(
            Problem::expected("as many values as the widths say, and some", found).at(place("sign_values"))
        );
    }
    Ok(Some(signs))
}

/// Heads of values in the order of their key heads, where the file has them the other way round.
fn order(m: &Metadata, width: usize) -> Result<Vec<f32>, Error> {
    let (heads, keys) = (m.usize("ssm.time_step_rank")?, m.usize("ssm.group_count")?);
    let fits = heads > 0 && keys > 0 && heads.is_multiple_of(keys) && width.is_multiple_of(heads);
    if !fits {
        let found = format!("{width} with {heads} heads for {keys}");
        return Err(
            Problem::expected("a width in whole heads", found).at("key `prism.hadamard.gdn_v_grouped`")
        );
    }
    let (dim, times) = (width / heads, heads / keys);
    let mut order = vec![0.0; width];
    for (key, time) in (0..keys).flat_map(|key| (0..times).map(move |time| (key, time))) {
        for d in 0..dim {
            order[d + dim * (time + times * key)] = (d + dim * (key + keys * time)) as f32;
        }
    }
    Ok(order)
}

fn insert(checkpoint: &mut Checkpoint, name: String, file_name: &str, numbers: &[f32]) -> Result<(), Error> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let tensor = Encoded::new(file_name, Shape::from([numbers.len()]), codec("f32"), bytes.into())?;
    checkpoint.insert(name, file_name.to_owned(), tensor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_values_are_grouped_by_their_key_heads() {
        let mut m = Metadata::default();
        m.set("ssm.time_step_rank", 4usize);
        m.set("ssm.group_count", 2usize);
        // Tiled: key heads 0, 1, 0, 1; grouped: 0, 0, 1, 1.
        assert_eq!(order(&m, 8).unwrap(), [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    }

    #[test]
    fn keys_that_are_not_understood_are_refused() {
        let whole = |change: &dyn Fn(&mut Metadata)| {
            let mut m = Metadata::default();
            m.set("prism.hadamard.version", 1u32);
            m.set("prism.hadamard.block_size", 4u32);
            m.set("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
            m.set("prism.hadamard.axis", "input-last-dimension");
            m.set("prism.hadamard.sign_mode", "explicit");
            m.set("prism.hadamard.sign_widths", vec![4i64, 8]);
            m.set("prism.hadamard.sign_values", vec![1i64, -1, 1, 1, -1, 1, 1, 1, 1, 1, 1, 1]);
            m.set("prism.hadamard.weight_names", vec!["blk.0.ffn_up.weight".to_owned()]);
            change(&mut m);
            Prism::take(&mut m).map(|prism| (prism.map(|p| p.signs), m.values.len()))
        };
        let (signs, left) = whole(&|_| {}).unwrap();
        assert_eq!(left, 1, "only the block is left");
        assert_eq!(signs.unwrap().unwrap()[&8], [-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let remove =
            |key: &'static str| move |m: &mut Metadata| drop(m.values.remove(&format!("{PREFIX}{key}")));
        for (change, word) in [
            (&remove("version") as &dyn Fn(&mut Metadata), "version"),
            (&|m: &mut Metadata| m.set("prism.hadamard.version", 3u32), "version 3"),
            (&|m: &mut Metadata| m.set("prism.hadamard.version", 2u32), "tied_output false"),
            (&|m: &mut Metadata| m.set("prism.hadamard.block_size", 3u32), "power of two"),
            (&|m: &mut Metadata| m.set("prism.hadamard.block_size", 16u32), "multiples of 16"),
            (&|m: &mut Metadata| m.set("prism.hadamard.transform", "fourier"), "fourier"),
            (&|m: &mut Metadata| m.set("prism.hadamard.axis", "rows"), "rows"),
            (&|m: &mut Metadata| m.set("prism.hadamard.sign_mode", "random"), "random"),
            (&|m: &mut Metadata| m.set("prism.hadamard.sign_values", vec![1i64; 11]), "multiples of 4"),
            (&|m: &mut Metadata| m.set("prism.hadamard.sign_values", vec![1i64; 13]), "1 too many"),
            (&|m: &mut Metadata| m.set("prism.hadamard.sign_values", vec![2i64; 12]), "1 or -1"),
            (&|m: &mut Metadata| m.set("prism.hadamard.extra", 1u32), "prism.hadamard.extra"),
            (&remove("weight_names"), "weight_names"),
        ] {
            let message = whole(change).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(word), "{message:?} does not say {word:?}");
        }
    }
}
