//! `exl2`: a directory whose matrices ExLlamaV2 packed: groups of inputs with bits of their own, in their own order.
//!
//! Of a matrix `[out, in]`: `q_weight` `I32 [words, out]`, each column a dense stream per group, lowest bit first;
//! `q_groups` `I16`, pairs of bits and first row of words; `q_scale` `I32 [groups, out / 8]`, four bits a scale;
//! `q_scale_max` `F16 [groups]`; `q_invperm` `I32 [in]`, where an input stands among the stored rows.
//! With `max = half(q_scale_max / 256)` and `scale = half((q_scale + 1)^2 * max)`, `w = (q - 2^(bits - 1)) * scale`.
//! The matrix brings the order of its inputs, and is one part for each run of groups of the same bits. The reference
//! rounds `w` to half precision once more; here it is not rounded.
//! Source: turboderp-org/exllamav2, `exllamav2_ext/cuda/q_matrix.cu`, `exllamav2/linear.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::{Piece, bits_at, unpack, words_down},
    scheme::{Groups, Module, Part, Pieces, Scheme},
};
use half::f16;
use nibble_quant::{
    Registry,
    grouped::{Float, Second},
};
use nibble_tensor::Shape;
use std::path::Path;

/// Groups are filled up to a multiple of this many inputs, as activations are rounded in such groups.
const UNIT: usize = 32;

/// The container.
pub(crate) struct Exl2;

impl Container for Exl2 {
    fn name(&self) -> &'static str {
        "exl2"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `exl2`: 2 to 8 bits, different for groups of inputs, in an order of their own"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "exl2")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |_| Ok(Box::new(Packed)))
    }
}

struct Packed;

/// Inputs that share scales.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Its number, which its scales go by.
    index: usize,
    bits: usize,
    /// The first row of words.
    word: usize,
    /// The first stored row, and how many there are.
    first: usize,
    len: usize,
}

impl Scheme for Packed {
    fn marks(&self) -> &'static [&'static str] {
        &[".q_weight"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".q_groups", ".q_scale", ".q_scale_max", ".q_invperm", ".q_perm", ".q_group_map"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let words = module.get_as(".q_weight", &["I32"])?;
        let [word_rows, outputs] = words.matrix("[words, out]")?;
        if !outputs.is_multiple_of(8) {
            return Err(Problem::expected("outputs in multiples of 8", outputs));
        }
        let invperm = module.get_as(".q_invperm", &["I32"])?;
        let stored = stored_order(&invperm.words().collect::<Vec<_>>())?;
        let groups = module.get_as(".q_groups", &["I16", "U16"])?;
        invperm.check(".q_invperm", &[invperm.info.shape.iter().product()])?;
        groups.check(".q_groups", &[groups.info.shape.iter().product()])?;
        let pairs: Vec<usize> = groups.halves().map(usize::from).collect();
        let groups = self::groups(&pairs, word_rows, stored.len())?;
        let scales = module.get_as(".q_scale", &["I32"])?;
        scales.check(".q_scale", &[groups.len(), outputs / 8])?;
        let most = module.get_as(".q_scale_max", &["F16"])?;
        most.check(".q_scale_max", &[groups.len()])?;
        let most: Vec<f16> = most.numbers()?.into_iter().map(|max| f16::from_f32(max / 256.0)).collect();
        let (mut pieces, mut order) = (Vec::new(), Vec::new());
        for (index, run) in groups.chunk_by(|a, b| a.bits == b.bits).enumerate() {
            for group in run {
                let filled = group.len.next_multiple_of(UNIT);
                let inputs = stored[group.first..group.first + group.len].iter().map(|&input| input as f32);
                order.extend(inputs.chain(std::iter::repeat_n(-1.0, filled - group.len)));
            }
            pieces.push((format!(".part.{index}"), part(words, scales, &most, run, outputs)?));
        }
        pieces.push((".order".into(), module.floats(&order)?));
        Ok(Some(pieces))
    }
}

/// Which input each stored row belongs to.
fn stored_order(invperm: &[i32]) -> Result<Vec<usize>, Problem> {
    let mut stored = vec![usize::MAX; invperm.len()];
    for (input, &row) in invperm.iter().enumerate() {
        match usize::try_from(row).ok().and_then(|row| stored.get_mut(row)) {
            Some(place) if *place == usize::MAX => *place = input,
            _ => {
                let expected = format!("each of the rows 0 to {} once in `.q_invperm`", invperm.len() - 1);
                return Err(Problem::expected(expected, format!("{row} again or too large")));
            }
        }
    }
    Ok(stored)
}

fn groups(pairs: &[usize], word_rows: usize, inputs: usize) -> Result<Vec<Group>, Problem> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(Problem::expected("pairs in `.q_groups`", pairs.len() * 2 + rest.len()));
    }
    let (mut groups, mut first) = (Vec::new(), 0);
    for (index, &[bits, word]) in pairs.iter().enumerate() {
        let end = pairs.get(index + 1).map_or(word_rows, |next| next[1]);
        let words =
            end.checked_sub(word).filter(|_| end <= word_rows && (2..=8).contains(&bits) && bits != 7);
        let words = words.ok_or_else(|| {
            let expected = format!("groups of 2 to 8 bits within {word_rows} words in `.q_groups`");
            Problem::expected(expected, format!("{bits} bits from {word} to {end}"))
        })?;
        let room = words * 32 / bits;
        let len = if index + 1 == pairs.len() { inputs.saturating_sub(first) } else { room };
        if len == 0 || len > room || first + len > inputs {
            let expected = format!("groups that hold {inputs} inputs in `.q_groups`");
            return Err(Problem::expected(expected, format!("group {index} with {room} from {first} on")));
        }
        groups.push(Group { index, bits, word, first, len });
        first += len;
    }
    Ok(groups)
}

/// The columns of a run of groups of the same bits.
fn part<'a>(
    words: Part<'a>,
    scales: Part<'a>,
    most: &[f16],
    run: &[Group],
    outputs: usize,
) -> Result<Piece<'a>, Problem> {
    let bits = run[0].bits;
    // For each block of columns, which group it is of.
    let filled = |group: &Group| group.len.next_multiple_of(UNIT);
    let block = [128, 64, UNIT].into_iter().find(|&len| run.iter().all(|g| filled(g).is_multiple_of(len)));
    let block = block.unwrap_or(UNIT);
    let of_block: Vec<(Group, f16)> =
        run.iter().flat_map(|g| std::iter::repeat_n((*g, most[g.index]), filled(g) / block)).collect();
    let columns = of_block.len() * block;
    let row_bytes = outputs / 8 * 4;
    let scale_of = of_block.clone();
    let numbers = move |output: usize, index: usize| {
        let (group, max) = scale_of[index];
        let code = bits_at(&scales.bytes[group.index * row_bytes..][..row_bytes], output * 4, 4);
        let square = f32::from(code + 1) * f32::from(code + 1);
        (f16::from_f32(square * max.to_f32()).to_f32(), f32::from(1u8 << (bits - 1)))
    };
    let run = run.to_vec();
    let codes = move |output: usize, out: &mut [u8]| {
        let mut rest = out;
        for group in &run {
            let (codes, others) = rest.split_at_mut(filled(group));
            let (codes, empty) = codes.split_at_mut(group.len);
            unpack(words_down(&words.bytes[group.word * outputs * 4..], outputs, output), bits, codes);
            empty.fill(1 << (bits - 1));
            rest = others;
        }
    };
    let shape = Shape::new(&[outputs, columns]).ok_or(Problem::Overflow)?;
    Groups { shape, bits, group: block, second: Second::Zero, float: Float::F16, numbers, codes }.piece()
}
