#!/usr/bin/env python3
"""Converts some of models/ to GGUF with llama.cpp's own converter, so that our reader meets its real conventions.

    pip install -r requirements.txt
    LLAMA_CPP=path/to/llama.cpp python3 gguf_models.py [NAME ...]     # writes gguf/NAME-TYPE.gguf beside this script

The weights of a model are exact in the types used here, so a converted file shares the golden.json of its source; only
the Q8_0 file has its own, from the numbers that its blocks decode to. The converter knows pre-tokenizers by a hash
of what they do and gemma2 only with a SentencePiece model: both are answered here for our small byte-level tokenizer.
"""
import argparse
import logging
import os
import pathlib
import sys
import tempfile

import make_models as M

HERE = pathlib.Path(__file__).resolve().parent
FILES = [("llama", "f32"), ("llama", "q8_0"), ("llama-rope-llama3", "bf16"), ("llama-rope-linear", "bf16"),
         ("llama-rope-yarn", "bf16"), ("qwen2", "f32"), ("qwen3", "f16"), ("gemma2", "f32"), ("gemma3", "bf16"),
         ("qwen3-moe", "f16"), ("gpt-oss", "bf16"), ("qwen3.5", "bf16")]


def load_converter(tree):
    sys.path.insert(0, str(tree))
    import convert_hf_to_gguf
    from conversion import base, gemma
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    gemma.Gemma2Model.set_vocab = lambda self: self._set_vocab_gpt2()
    return convert_hf_to_gguf


def convert(converter, name, kind, out):
    sys.argv = ["convert", str(HERE / "models" / name), "--outfile", str(out), "--outtype", kind]
    if M.MODELS[name][0] == "qwen3_5_text":
        sys.argv.append("--no-mtp")
    converter.main()
    out.chmod(0o644)
    logging.getLogger().setLevel(logging.WARNING)
    print(f"{out.name}: {out.stat().st_size / 1000:.0f} kB", flush=True)


def golden_q8_0(name, path):
    """The golden record of a model whose matrices went through Q8_0 (rows may be permuted, so blocks stay the same)."""
    import torch
    from gguf import GGMLQuantizationType as Q, quants
    weights = M.load_file(HERE / "models" / name / "model.safetensors")
    for n, w in weights.items():
        w = w.float().numpy()
        if w.ndim == 2:
            w = quants.dequantize(quants.quantize(w, Q.Q8_0), Q.Q8_0)
        weights[n] = torch.from_numpy(w.copy())
    with tempfile.TemporaryDirectory() as tmp:
        M.config_for(name).save_pretrained(tmp)
        M.save_file(weights, f"{tmp}/model.safetensors", metadata={"format": "pt"})
        record = M.golden(M.load(tmp), f"{name} with its matrices decoded from Q8_0, activations not rounded")
    M.write_golden(path, record)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", help="models to convert (default: all)")
    ap.add_argument("--out", type=pathlib.Path, default=HERE / "gguf")
    a = ap.parse_args()
    M.torch.set_num_threads(1)
    M.transformers.logging.set_verbosity_error()
    M.transformers.logging.disable_progress_bar()
    a.out.mkdir(exist_ok=True)
    converter = load_converter(pathlib.Path(os.environ["LLAMA_CPP"]))
    for name, kind in FILES:
        if a.names and name not in a.names:
            continue
        convert(converter, name, kind, a.out / f"{name}-{kind}.gguf")
        if kind == "q8_0":
            golden_q8_0(name, a.out / f"{name}-{kind}.golden.json")


if __name__ == "__main__":
    main()
