//! Models with one weight changed, and sides over them.

use nibble_api::{Encoded, Error, Model, Options, Registry};
use nibble_parity::{Device, Opening, Report, Text, Work, compare, exact};
use nibble_testkit::{TempDir, tiny::Tiny};
use std::{ops::ControlFlow, path::Path, sync::Arc};

/// Tokens that the plans of these tests hold.
pub const CONTEXT: usize = 96;

pub fn options(device: &str) -> Options {
    let options = Options { threads: Some(2), context: Some(CONTEXT), ..Options::default() };
    exact(&Options { device: device.into(), ..options })
}

/// Writes a model to `scratch`, where it must stay as long as sides are made of it, and opens it.
pub fn open(scratch: &TempDir, tiny: &Tiny) -> Model {
    let path = scratch.file(&format!("{}.gguf", tiny.name));
    if !path.exists() {
        std::fs::write(&path, tiny.gguf()).unwrap();
    }
    Model::open(&path, &Registry::default()).unwrap()
}

/// A few texts, of which the first and the fifth are traced.
pub fn texts() -> Vec<Text> {
    let text = |i: usize| Text {
        name: format!("text {i}"),
        text: "Of the nine lamps on the quay, two were always out. ".repeat(i % 4 + 1)[i..].to_owned(),
    };
    (0..6).map(text).collect()
}

/// Changes one number of a weight, which must be in f32, by one per cent: the one whose size is usual.
pub fn change(model: &mut Model, name: &str) {
    let weight = model.graph.weights.iter_mut().find(|w| w.name == name).unwrap();
    let mut numbers = weight.data.decode();
    let usual = (numbers.iter().map(|x| x * x).sum::<f32>() / numbers.len() as f32).sqrt();
    let at = (0..numbers.len()).min_by(|&a, &b| {
        let off = |i: usize| (numbers[i].abs() - usual).abs();
        off(a).total_cmp(&off(b))
    });
    numbers[at.unwrap()] *= 1.01;
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let codec = Registry::default().by_name("f32").unwrap();
    assert_eq!(weight.data.name(), "f32");
    weight.data = Encoded::new(name, weight.data.shape(), codec, bytes.into()).unwrap();
    model.checkpoint.tensors.insert(name.into(), weight.data.clone());
}

pub fn opening<'a>(model: &'a Arc<Model>, options: &'a Options, texts: &'a [Text]) -> Opening<'a> {
    Opening { model, options, program: None, tokens: None, texts }
}

/// Compares a model on a device with what `against` means.
pub fn report(model: &Arc<Model>, device: &str, against: &str, bounds: &str) -> Result<Report, Error> {
    let (options, texts) = (options(device), texts());
    let mut reference = nibble_parity::open(against, &opening(model, &options, &texts))?;
    let mut subject = Device::new(model.clone(), &options)?;
    let work = Work { texts: &texts, continuation: 5, bounds };
    compare(&mut subject, reference.as_mut(), &work, CONTEXT, &mut |_| ControlFlow::Continue(()))
}

pub fn model_at(path: &Path) -> Arc<Model> {
    Arc::new(Model::open(path, &Registry::default()).unwrap())
}

pub fn golden(name: &str) -> std::path::PathBuf {
    nibble_testkit::workspace_root().join("golden").join(name)
}
