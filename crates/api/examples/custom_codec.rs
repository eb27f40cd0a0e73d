//! An encoding of your own, from the file to the text: `cargo run --release -p nibble-api --example custom_codec`
//!
//! It is registered at run time; `quantize` writes the story model in it, `Model::open` reads that file, and the engine
//! answers. No kernel is needed: small integers and scales are what every device can multiply.

use nibble_api::{
    Codec, CodecKind, Encode, Event, Group, Kind, Model, Options, QuantizeOptions, Registry, Request, Spec,
    Unpacked, builtin_bytes, decode_unpacked, quantize,
};
use std::{error::Error, fs, ops::ControlFlow};

/// `mine`: 32 numbers as signed bytes under one scale.
///
/// Block, 36 bytes, little-endian: `q: [i8; 32]` at 0, `d: f32` at 32. Number i is `d * q[i]`.
struct Mine;

impl Codec for Mine {
    fn spec(&self) -> &'static Spec {
        // Files name it by its tensor type: choose one that nobody else uses.
        &Spec { name: "mine", block_len: 32, block_bytes: 36, gguf: Some(9001) }
    }

    fn kind(&self) -> CodecKind {
        CodecKind::Group32 // a scale for every 32 numbers
    }

    /// What a block means. From -127 to 127 a code may be any number of steps.
    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (codes, scale) = block.split_at(32);
        out.groups[0] = Group::symmetric(f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]));
        out.codes.iter_mut().zip(codes).for_each(|(code, &byte)| *code = byte as i8);
    }

    /// The same as numbers; a codec whose numbers are no integers times a scale writes this alone.
    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

/// Only needed to write files.
impl Encode for Mine {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (row, out) in row.chunks(32).zip(out.chunks_mut(36)) {
            let scale = row.iter().fold(1e-30f32, |most, x| most.max(x.abs())) / 127.0;
            row.iter().zip(&mut *out).for_each(|(x, out)| *out = (x / scale).round() as i8 as u8);
            out[32..].copy_from_slice(&scale.to_le_bytes());
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("nibble-custom-codec-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (story, mine) = (folder.join("story.gguf"), folder.join("mine.gguf"));
    fs::write(&story, builtin_bytes())?;

    let mut codecs = Registry::default();
    codecs.register(Mine)?;
    let options = QuantizeOptions::encoding("mine");
    quantize(&story, &mine, &options, &codecs, &mut |_| ControlFlow::Continue(()))?;

    // Who does not know the encoding is told so; who does reads it as any other.
    let refused = Model::open(&mine, &Registry::default()).err().ok_or("read without the codec")?;
    assert!(refused.kind == Kind::Load && refused.to_string().contains("9001"), "{refused}");
    let model = Model::open(&mine, &codecs)?;
    assert!(model.checkpoint.tensors.values().filter(|tensor| tensor.name() == "mine").count() > 10);

    let mut engine = model.start(&Options::default())?;
    let prompt = model.encode("Once upon a time")?;
    engine.submit(Request { prompt, max_tokens: Some(16), ..Request::default() })?;
    let (mut text, mut events) = (String::new(), vec![]);
    while !engine.is_idle() {
        engine.step(&mut events)?;
        for event in events.drain(..) {
            if let Event::Token { text: more, .. } | Event::Finished { text: more, .. } = event {
                text.push_str(&more);
            }
        }
    }
    println!("Once upon a time{text}");
    assert!(text.split_whitespace().count() > 4, "{text:?}");
    fs::remove_dir_all(&folder)?;
    Ok(())
}
