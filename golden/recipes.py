#!/usr/bin/env python3
"""What llama.cpp's llama-quantize makes of each tensor, for the file types that nibble writes too.

    pip install gguf numpy
    LLAMA_QUANTIZE=path/to/llama-quantize python3 recipes.py          # writes recipes.json beside this script

The models are headers: only names, row lengths and a few keys decide, so tensors have two rows (and two matrices if they are
stacks), and `--dry-run` reads none of them. recipes.json holds for each model its keys and tensors, layers as `N`, and for
each file type, `TYPE` or `TYPE+imatrix`, what names become: `{"q6_k": {"blk.N.attn_v.weight": "0-3 6 9"}}`. What is not named
becomes `base`, or stays f32.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
QUANTIZE = os.environ.get("LLAMA_QUANTIZE", "llama-quantize")
TYPES = ("q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs q3_k_l q3_k_m q3_k_s q2_k q2_0 tq2_0 tq1_0 "
         "mxfp4_moe f16 bf16").split()
WITH_WEIGHTS = "q2_k_s q4_0 q5_0 iq4_xs q4_k_m".split()


def dense(row, inner, kv):
    return {"attn_norm.weight": [row], "attn_q.weight": [row, 2], "attn_k.weight": [row, 2], "attn_v.weight": [row, 2],
            "attn_output.weight": [row, 2], "ffn_norm.weight": [row], "ffn_gate.weight": [row, 2], "ffn_up.weight": [row, 2],
            "ffn_down.weight": [inner, 2]}


def experts(row, inner):
    layer = dense(row, inner, 2)
    for name in ["ffn_gate", "ffn_up", "ffn_down"]:
        layer[f"{name}_exps.weight"] = [*layer.pop(f"{name}.weight"), 2]
    return {**layer, "ffn_gate_inp.weight": [row, 8]}


def model(arch, layers, heads, kv, row, layer, tied=False, **keys):
    outer = {"token_embd.weight": [row, 2], "output_norm.weight": [row]}
    if not tied:
        outer["output.weight"] = [row, 2]
    keys = {"block_count": layers, "context_length": 64, "embedding_length": row, "feed_forward_length": 2 * row,
            "attention.head_count": heads, "attention.head_count_kv": kv, "attention.layer_norm_rms_epsilon": 1e-5, **keys}
    return {"architecture": arch, "keys": keys, "outer": outer, "layer": layer}


MODELS = {
    "llama-8b": model("llama", 32, 32, 8, 512, dense(512, 1792, 8)),
    "llama-tied": model("llama", 30, 9, 3, 576, dense(576, 1536, 3), tied=True),
    "llama-70b": model("llama", 80, 64, 8, 512, dense(512, 1792, 8)),
    "qwen2-72b": model("qwen2", 80, 64, 32, 512, dense(512, 1792, 32)),
    "llama-many-heads": model("llama", 40, 40, 40, 512, dense(512, 1280, 40)),
    "mixtral": model("llama", 32, 32, 8, 512, experts(512, 1792), expert_count=8, expert_used_count=2),
    "qwen3-moe": model("qwen3moe", 12, 32, 4, 512, {**experts(512, 768), "attn_q_norm.weight": [128]},
                       expert_count=128, expert_used_count=8, expert_feed_forward_length=768),
    "phi3": model("phi3", 10, 32, 32, 768, {
        "attn_norm.weight": [768], "attn_qkv.weight": [768, 2], "attn_output.weight": [768, 2], "ffn_norm.weight": [768],
        "ffn_up.weight": [768, 2], "ffn_down.weight": [2048, 2]}, **{"rope.dimension_count": 24}),
    "odd-rows": model("llama", 4, 4, 4, 80, dense(80, 224, 4)),
}


def tensors(m):
    yield from m["outer"].items()
    for n in range(m["keys"]["block_count"]):
        yield from ((f"blk.{n}.{name}", shape) for name, shape in m["layer"].items())


def is_matrix(name, shape):
    return len(shape) > 1 and "ffn_gate_inp" not in name


def write(path, m):
    w = gguf.GGUFWriter(path, m["architecture"])
    for key, value in m["keys"].items():
        (w.add_float32 if isinstance(value, float) else w.add_uint32)(f"{m['architecture']}.{key}", value)
    for name, shape in tensors(m):
        w.add_tensor(name, np.zeros(shape[::-1], np.float16 if is_matrix(name, shape) else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_weights(path):
    w = gguf.GGUFWriter(path, "")
    w.add_type("imatrix")
    w.add_array("imatrix.datasets", ["none"])
    w.add_uint32("imatrix.chunk_count", 1)
    w.add_uint32("imatrix.chunk_size", 512)
    w.add_tensor("none.weight.in_sum2", np.ones((1, 32), np.float32))
    w.add_tensor("none.weight.counts", np.ones((1, 1), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantized(path, kind, weights):
    """The encoding of each tensor that changes."""
    command = [QUANTIZE, "--dry-run", *(["--imatrix", weights] if weights else []), path, kind.upper()]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{run.stderr[-2000:]}")
    found = {}
    for line in (run.stdout + run.stderr).splitlines():
        m = re.match(r"\[ *\d+/ *\d+\] +(\S+) +- \[.*\], type = +(\w+), .*?(?:\((\w+)\))?$", line.strip())
        if m and m[3]:
            found[m[1]] = m[3].lower()
    return found


def ranges(numbers):
    runs = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def grouped(found):
    """Encoding -> name with N for the layer -> layers, or an empty text where there is none."""
    groups = {}
    for name, to in found.items():
        m = re.match(r"blk\.(\d+)\.(.*)", name)
        layers = groups.setdefault(to, {}).setdefault(f"blk.N.{m[2]}" if m else name, [])
        layers.extend([int(m[1])] if m else [])
    base = max(groups, key=lambda to: sum(map(len, groups[to].values())))
    return {"base": base, **{to: {n: ranges(l) for n, l in names.items()} for to, names in groups.items() if to != base}}


def main():
    record = {"models": MODELS, "types": {}}
    with tempfile.TemporaryDirectory() as tmp:
        path, weights = f"{tmp}/model.gguf", f"{tmp}/imatrix.gguf"
        write_weights(weights)
        for name, m in MODELS.items():
            write(path, m)
            kinds = [(kind, None) for kind in TYPES] + [(f"{kind}+imatrix", weights) for kind in WITH_WEIGHTS]
            of = record["types"][name] = {}
            for label, with_weights in kinds:
                found = quantized(path, label.removesuffix("+imatrix"), with_weights)
                of[label] = grouped({n: found.get(n, "f16") for n, shape in tensors(m) if is_matrix(n, shape)})
            print(name, len(of), flush=True)
    text = json.dumps(record, indent=1)
    text = re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
    (HERE / "recipes.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
