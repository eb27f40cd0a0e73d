"""Logits of given tokens by mlx-lm, for `nibble parity --against mlx-lm`.

Arguments: a model directory. Each line of stdin is a JSON list of tokens. For each, and once at the start, stdout gets a
line of JSON; `shape` in it announces that many float32 numbers, little-endian, right behind the line.
"""

import importlib.metadata
import json
import os
import sys

# What libraries print must not get between the numbers.
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
os.environ["HF_HUB_OFFLINE"] = "1"

import mlx.core as mx
import mlx_lm
import numpy


def say(head, numbers=b""):
    out.write(json.dumps(head).encode() + b"\n" + numbers)
    out.flush()


model, _ = mlx_lm.load(sys.argv[1])
say({"versions": {name: importlib.metadata.version(name) for name in ("mlx-lm", "mlx")}})
for line in sys.stdin:
    logits = model(mx.array([json.loads(line)]))[0].astype(mx.float32)
    say({"shape": list(logits.shape)}, numpy.asarray(logits).astype("<f4").tobytes())
