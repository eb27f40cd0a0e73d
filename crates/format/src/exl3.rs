//! `exl3`: a directory whose matrices ExLlamaV3 packed: a trellis of 1 to 8 bits a number, in a rotated basis.
//!
//! Of a matrix `[out, in]`, each a multiple of 128: `trellis` `I16 [in / 16, out / 16, 16 * bits]`, a tile of 16 by 16
//! numbers each; `suh` `F16 [in]` and `svh` `F16 [out]`, signs and scales (older: `su`, `sv`, signs as bits);
//! `mcg` or `mul1`, whose presence chooses a codebook. `y = svh * H(V^T H(suh * x))`, with V the numbers of the trellis
//! and H the Hadamard transform in blocks of 128. Tiles of sixteen outputs are put in a row, their bytes in order.
//! Source: turboderp-org/exllamav3, `modules/quant/exl3.py`, `exllamav3_ext/quant`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::{Piece, Repack},
    scheme::{Module, Pieces, Scheme},
};
use nibble_quant::{
    Codec, Registry,
    exl3::{Codebook, Exl3 as Trellis},
};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The block of the transform.
const BLOCK: usize = 128;

/// The container.
pub(crate) struct Exl3;

impl Container for Exl3 {
    fn name(&self) -> &'static str {
        "exl3"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `exl3`: trellises of 1 to 8 bits in three codebooks, rotated"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "exl3")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let book = config.root["quantization_config"].get("codebook").and_then(Json::as_str);
            Ok(Box::new(Packed(book.map(str::to_owned))))
        })
    }
}

/// The codebook that `config.json` names; the tensors decide, but must not contradict it.
struct Packed(Option<String>);

/// Codebooks by the name that `config.json` has for them.
const BOOKS: &[(&str, Codebook)] =
    &[("3inst", Codebook::ThreeInst), ("mcg", Codebook::Mcg), ("mul1", Codebook::Mul1)];

impl Scheme for Packed {
    fn marks(&self) -> &'static [&'static str] {
        &[".trellis"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".suh", ".svh", ".su", ".sv", ".mcg", ".mul1"]
    }

    fn rotation_block(&self) -> Option<usize> {
        Some(BLOCK)
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let trellis = module.get_as(".trellis", &["I16", "U16"])?;
        let &[row_tiles, column_tiles, words] = trellis.dims() else {
            let expected = "`.trellis` of shape [in / 16, out / 16, 16 * bits]";
            return Err(Problem::expected(expected, format!("{:?}", trellis.dims())));
        };
        let book = match (module.find(".mcg"), module.find(".mul1")) {
            (Some(_), _) => Codebook::Mcg,
            (None, Some(_)) => Codebook::Mul1,
            (None, None) => Codebook::ThreeInst,
        };
        if let Some(name) = &self.0
            && !BOOKS.contains(&(name, book))
        {
            return Err(Problem::expected(
                format!("the codebook {name} of config.json"),
                format!("{book:?}"),
            ));
        }
        let codec = Trellis::find(words / 16, book).filter(|_| words.is_multiple_of(16));
        let codec =
            codec.ok_or_else(|| Problem::expected("16 to 128 words in a tile of `.trellis`", words))?;
        let dims = [column_tiles, row_tiles].map(|tiles| tiles.checked_mul(16).ok_or(Problem::Overflow));
        let [outputs, inputs] =
            [dims[0].as_ref().copied().unwrap_or(0), dims[1].as_ref().copied().unwrap_or(0)];
        if outputs == 0 || inputs == 0 || !outputs.is_multiple_of(BLOCK) || !inputs.is_multiple_of(BLOCK) {
            return Err(Problem::expected("a matrix in multiples of 128", format!("[{outputs}, {inputs}]")));
        }
        let (rotate, unrotate) =
            (signs(module, [".suh", ".su"], inputs)?, signs(module, [".svh", ".sv"], outputs)?);
        let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
        let bytes = codec.spec().block_bytes;
        let weight = Repack::piece(shape, codec, move |rows, out| {
            for (column, strip) in (rows.start / 16..).zip(out.chunks_exact_mut(row_tiles * bytes)) {
                for (index, block) in strip.chunks_exact_mut(bytes).enumerate() {
                    let at = (index * column_tiles + column) * words * 2;
                    codec.put(&trellis.bytes[at..at + words * 2], block);
                }
            }
            Ok(())
        })?;
        let pieces = [("", weight), (".rotate", rotate), (".unrotate", unrotate)];
        Ok(Some(pieces.into_iter().map(|(ending, piece)| (ending.to_owned(), piece)).collect()))
    }
}

/// A vector of signs and scales, or the older one of signs: bit i of word j set is -1 at 16j + i.
fn signs<'a>(module: &Module<'a>, [new, old]: [&str; 2], len: usize) -> Result<Piece<'a>, Problem> {
    if module.find(new).is_none() && module.find(old).is_some() {
        let bits = module.get_as(old, &["I16", "U16"])?;
        bits.check(old, &[len / 16])?;
        let sign = |word: u16, i: usize| if word >> i & 1 == 1 { -1.0 } else { 1.0 };
        let signs: Vec<f32> = bits.halves().flat_map(|word| (0..16).map(move |i| sign(word, i))).collect();
        return module.floats(&signs);
    }
    let signs = module.get_as(new, &["F16"])?;
    signs.check(new, &[len])?;
    module.floats(&signs.numbers()?)
}
