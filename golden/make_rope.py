#!/usr/bin/env python3
"""Writes rope.json: inverse frequencies and attention factors of rope scalings, as transformers computes them.

    pip install -r requirements.txt
    python3 make_rope.py

`inv_freq` is transformers' float32 result, one per rotated pair. `attention_factor` multiplies cosine and sine, so it is
applied once to the queries and once to the keys. A case with `seq_len` gives the frequencies of a pass of that length.
"""
import json
import pathlib

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

L31 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
           original_max_position_embeddings=8192)
YARN = dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, factor=32.0, original_max_position_embeddings=4096,
            short_factor=[1.0 + i / 10 for i in range(8)], long_factor=[1.0 + i * i for i in range(8)])
CASES = [  # name, head_dim, max_position_embeddings, rope parameters, sequence length
    ("default", 64, 2048, dict(rope_type="default", rope_theta=10000.0), None),
    ("default-partial", 64, 2048, dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25), None),
    ("linear", 64, 8192, dict(rope_type="linear", rope_theta=10000.0, factor=4.0), None),
    ("linear-gemma3-global", 256, 131072, dict(rope_type="linear", rope_theta=1000000.0, factor=8.0), None),
    ("llama3.1", 128, 131072, L31, None),
    ("llama3.2", 64, 131072, dict(L31, factor=32.0), None),
    ("llama3-other-bounds", 96, 65536, dict(L31, factor=16.0, low_freq_factor=2.0, high_freq_factor=8.0), None),
    ("yarn", 128, 131072, YARN, None),
    ("yarn-attention-factor-1", 128, 131072, dict(YARN, attention_factor=1.0), None),
    ("yarn-betas", 64, 131072, dict(YARN, factor=16.0, original_max_position_embeddings=8192, beta_fast=16.0, beta_slow=2.0), None),
    ("yarn-mscale", 64, 163840, dict(YARN, rope_theta=10000.0, factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
                                     mscale_all_dim=0.5), None),
    ("yarn-no-truncate", 64, 131072, dict(YARN, rope_theta=150000.0, factor=32.0, original_max_position_embeddings=4096, truncate=False), None),
    ("dynamic-within", 64, 2048, DYNAMIC, 2048),
    ("dynamic-beyond", 64, 2048, DYNAMIC, 5000),
    ("longrope-short", 16, 131072, LONG, 4096),
    ("longrope-long", 16, 131072, LONG, 4097),
]


def main():
    out = dict(transformers=transformers.__version__, torch=torch.__version__.split("+")[0], cases=[])
    for name, head_dim, positions, rope, seq_len in CASES:
        c = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, max_position_embeddings=positions,
                        rope_parameters=dict(rope))
        if rope["rope_type"] == "default":
            inv, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(c)
            if "partial_rotary_factor" in rope:
                dim = int(head_dim * rope["partial_rotary_factor"])
                inv = 1.0 / (rope["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim))
        else:
            inv, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](c, "cpu", seq_len=seq_len)
        case = dict(name=name, head_dim=head_dim, max_position_embeddings=positions, rope_parameters=rope)
        if seq_len is not None:
            case["seq_len"] = seq_len
        out["cases"].append(dict(case, attention_factor=float(factor), inv_freq=[float(f"{v:.9g}") for v in inv.tolist()]))
    rows = [json.dumps(c) for c in out.pop("cases")]
    head = json.dumps(out)[:-1]
    text = head + ', "cases": [\n' + ",\n".join(rows) + "\n]}\n"
    json.loads(text)
    pathlib.Path(__file__).with_name("rope.json").write_text(text)


if __name__ == "__main__":
    main()
