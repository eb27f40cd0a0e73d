#!/usr/bin/env python3
"""What mlx.core.quantize makes of some rows: the reference for our rounding into affine codes.

    pip install 'mlx[cpu]'
    MLX_DISABLE_COMPILE=1 python3 mlx_quantize.py          # writes mlx_quantize.json beside this script

`rows`: 2 x 128 numbers as hex digits of f32, exact in all types, the second row of special groups. By `TYPE BITS GROUP`: words,
scales and biases as hex digits, as they lie in a file.
"""
import json
import pathlib

import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def rows():
    normal = np.random.default_rng(5).standard_normal(128) * 0.05
    # Alike, zero, of one sign, tiny, with one that sticks out; groups of 16 so that every length of group mixes some.
    special = np.concatenate([np.full(32, -0.25), np.zeros(32), np.abs(normal[:16]), -np.abs(normal[16:32]),
                              normal[32:48] * 1e-6, np.where(np.arange(16) == 3, 4.0, normal[48:64])])
    numbers = mx.array(np.stack([normal, special]).astype(np.float32))
    # Exact as f16 and as bf16: no more than 8 significant bits, none below f16's smallest normal number.
    return mx.where(mx.abs(numbers) < 1e-4, 0, numbers).astype(mx.bfloat16).astype(mx.float32)


def hexed(array):
    raw = array.view(mx.uint16) if array.dtype in (mx.float16, mx.bfloat16) else array
    return np.array(raw).tobytes().hex()


def main():
    numbers = rows()
    record = {"rows": hexed(numbers)}
    for name, dtype in [("f32", mx.float32), ("f16", mx.float16), ("bf16", mx.bfloat16)]:
        typed = numbers.astype(dtype)
        assert mx.array_equal(typed.astype(mx.float32), numbers)
        for bits in [2, 3, 4, 5, 6, 8]:
            for group in [32, 64, 128]:
                record[f"{name} {bits} {group}"] = [hexed(a) for a in mx.quantize(typed, group_size=group, bits=bits)]
    (HERE / "mlx_quantize.json").write_text(json.dumps(record, indent=0) + "\n")


if __name__ == "__main__":
    main()
