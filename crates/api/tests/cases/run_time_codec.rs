//! An encoding that a program brings along works from the file to the text.

use crate::common::{answer, distance, exact, greedy, logits, options, with_file};
use nibble_api::{
    Codec, CodecKind, Encode, Group, Kind, Model, Options, Registry, Spec, Unpacked, decode_unpacked,
};
use nibble_testkit::tiny;

/// `made_up6`: 32 numbers as signed bytes of which only 6 bits are used, and the scale behind them.
///
/// Block, 36 bytes, little-endian: `q: [i8; 32]` at 0, `d: f32` at 32. Number i is `d * q[i]`, q from -31 to 31.
struct MadeUp;

static SPEC: Spec = Spec { name: "made_up6", block_len: 32, block_bytes: 36, gguf: Some(9001) };

impl Codec for MadeUp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn kind(&self) -> CodecKind {
        CodecKind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (codes, scale) = block.split_at(32);
        out.groups[0] = Group::symmetric(f32::from_le_bytes(scale.try_into().unwrap()));
        out.codes.iter_mut().zip(codes).for_each(|(code, &q)| *code = q as i8);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for MadeUp {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (row, out) in row.chunks(32).zip(out.chunks_mut(36)) {
            let d = row.iter().fold(0f32, |max, x| max.max(x.abs())) / 31.0;
            let code = |x: f32| if d > 0.0 { (x / d).round() as i8 } else { 0 };
            row.iter().zip(&mut out[..32]).for_each(|(&x, out)| *out = code(x) as u8);
            out[32..].copy_from_slice(&d.to_le_bytes());
        }
    }
}

#[test]
fn a_codec_registered_at_run_time_is_opened_run_and_told_apart() {
    let mut codecs = Registry::default();
    let codec = codecs.register(MadeUp).unwrap();
    let tokens = tiny::prompt(1, 30);
    for t in tiny::all() {
        with_file(&t.gguf_in(codec), |path| {
            let Err(refused) = Model::open(path, &Registry::default()) else {
                panic!("read without a codec")
            };
            assert_eq!(refused.kind, Kind::Load);
            assert!(refused.to_string().contains("9001"), "{refused}");

            let model = Model::open(path, &codecs).unwrap();
            let used = model.checkpoint.tensors.values().filter(|w| w.name() == "made_up6").count();
            assert!(used > 10, "{}: {used} tensors", t.name);
            let reference = logits(&model, &Options { device: "reference".into(), ..exact() }, &tokens);
            let found = distance(&logits(&model, &exact(), &tokens), &reference);
            assert!(found < 1e-3, "{}: {found}", t.name);

            let expected = answer(&mut model.start(&options()).unwrap(), greedy(&tokens, 20));
            assert_eq!(expected.tokens.len(), 20);
            for (threads, chunk) in [(1, 1), (3, 7)] {
                let options = Options { threads: Some(threads), prefill_chunk: Some(chunk), ..options() };
                let found = answer(&mut model.start(&options).unwrap(), greedy(&tokens, 20));
                assert_eq!(found, expected, "{}", t.name);
            }
        });
    }
}

#[test]
fn every_encoding_that_can_be_written_runs() {
    let tokens = tiny::prompt(2, 9);
    let codecs = Registry::default();
    for codec in codecs.iter().filter(|c| c.encoder().is_some() && c.spec().gguf.is_some()) {
        let name = codec.spec().name;
        with_file(&tiny::llama().gguf_in(codec), |path| {
            let model = Model::open(path, &codecs).unwrap_or_else(|e| panic!("{name}: {e}"));
            let reference = logits(&model, &Options { device: "reference".into(), ..exact() }, &tokens);
            let found = distance(&logits(&model, &exact(), &tokens), &reference);
            assert!(found < 1e-3, "{name}: {found}");
            let [one, more] = [1, 9].map(|chunk| {
                logits(&model, &Options { prefill_chunk: Some(chunk), wanted: chunk, ..options() }, &tokens)
            });
            assert!(one == more, "{name}: row by row and at once");
        });
    }
}
