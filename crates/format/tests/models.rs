//! Whole models: the trained tiny ones, real ones and golden ones, as far as they are there.

use nibble_format::{Checkpoint, TokenizerSource, open};
use nibble_quant::Registry;
use std::path::Path;

fn opened(path: &Path) -> Checkpoint {
    open(path, &Registry::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn dims<'a>(c: &'a Checkpoint, name: &str) -> &'a [usize] {
    let tensor = c.tensors.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", c.tensors.keys()));
    let dims = tensor.shape();
    Box::leak(dims.dims().to_vec().into_boxed_slice())
}

/// Every layer has its norms and the whole has an embedding of the size that the keys say.
fn check(c: &Checkpoint) {
    let (layers, width) =
        (c.metadata.usize("block_count").unwrap(), c.metadata.usize("embedding_length").unwrap());
    let vocab = c.metadata.usize("vocab_size").unwrap();
    assert_eq!(dims(c, "embed"), [vocab, width]);
    assert_eq!(dims(c, "norm"), [width]);
    for layer in 0..layers {
        assert_eq!(dims(c, &format!("layer.{layer}.attn.norm")), [width], "{}", c.path.display());
        assert_eq!(dims(c, &format!("layer.{layer}.ffn.norm")), [width], "{}", c.path.display());
    }
    assert!(c.metadata.get("rope.layout").is_some() && c.metadata.get("attention.scale").is_some());
    assert_eq!(c.unused, Vec::<String>::new(), "{}", c.path.display());
    assert!(c.tensors.keys().eq(c.file_names.keys()));
}

#[test]
fn tiny_models_open_with_the_shapes_of_their_architectures() {
    let Some(shared) = nibble_testkit::shared_dir() else { return };
    let tiny = |name: &str| {
        let c = opened(&shared.join("tiny").join(name));
        check(&c);
        assert!(matches!(c.tokenizer, TokenizerSource::Json { config: Some(_), .. }));
        assert!(c.chat_template.as_ref().unwrap().contains("<|im_start|>"));
        assert_eq!(c.metadata.ints("tokenizer.ggml.eos_token_ids").unwrap(), [2, 0]);
        c
    };
    for (name, layers) in [("tiny-llama", 8), ("tiny-llama-draft", 2)] {
        let c = tiny(name);
        assert_eq!((c.architecture.as_str(), c.metadata.usize("block_count").unwrap()), ("llama", layers));
        assert_eq!(dims(&c, "layer.1.attn.k"), [128, 256]);
        assert_eq!(c.tensors["layer.1.attn.k"].name(), "bf16");
        assert_eq!(c.tensors.len(), 2 + 9 * layers);
    }
    let c = tiny("tiny-qwen3-moe");
    assert_eq!(c.architecture, "qwen3moe");
    assert_eq!(dims(&c, "layer.3.moe.gate"), [16, 256, 256]);
    assert_eq!(c.tensors["layer.3.moe.gate"].parts().len(), 16);
    assert_eq!(dims(&c, "layer.3.moe.router"), [16, 256]);
    assert_eq!(dims(&c, "layer.3.attn.q_norm"), [64]);
    assert_eq!(c.metadata.find_bools("expert_layers").unwrap().unwrap(), [true; 4]);
    assert_eq!(c.metadata.find_bool("expert_weights_norm").unwrap(), Some(true));

    let c = tiny("tiny-gemma2");
    assert_eq!(c.architecture, "gemma2");
    assert_eq!(c.metadata.texts("attention.layer_types").unwrap(), ["sliding", "full", "sliding", "full"]);
    assert_eq!(c.metadata.f32("attn_logit_softcapping").unwrap(), 20.0);
    assert_eq!(c.metadata.f32("attention.scale").unwrap(), 0.125);
    for norm in ["attn.norm", "attn.post_norm", "ffn.norm", "ffn.post_norm"] {
        let norm = &c.tensors[&format!("layer.0.{norm}")];
        assert_eq!(norm.name(), "f32");
        assert!(
            norm.decode().iter().sum::<f32>() > 0.0,
            "a norm stored minus one, read as the factor itself"
        );
    }

    let c = tiny("tiny-bitnet");
    assert_eq!(dims(&c, "layer.0.attn.k"), [128, 256]);
    assert_eq!(dims(&c, "layer.0.ffn.down.scale"), [1]);
    assert_eq!(c.tensors["layer.0.ffn.down"].name(), "tq2_0");

    let c = tiny("tiny-qwen3.5");
    assert_eq!(c.architecture, "qwen35");
    assert_eq!(c.metadata.texts("attention.layer_types").unwrap(), ["linear", "linear", "linear", "full"]);
    assert_eq!(dims(&c, "layer.0.delta.conv"), [512, 4]);
    assert!(c.tensors["layer.0.delta.decay"].decode().iter().all(|&x| x < 0.0));
    assert_eq!(dims(&c, "layer.3.attn.q"), [512, 256]);
    assert_eq!(c.metadata.usize("rope.dimension_count").unwrap(), 16);
    assert_eq!(c.metadata.usize("ssm.inner_size").unwrap(), 256);
    assert_eq!(c.metadata.f32("rope.freq_base").unwrap(), 1e7);
}
