"""Cuts golden/codecs.json from the vectors folder: a few blocks of every codec, and one row for every encoder.

    python3 golden/codecs.py ../shared/vectors [libggml.so]

`decode`: by codec, the bytes of some blocks and the numbers that the reference makes of them (little-endian f32), both
as hex digits. Blocks come from the random rows of a vector: its first ones, which hold the edge scales, and its last.
`encode`: rows of 512 numbers, a weight for each column, and the bytes that the reference quantizers write for them,
without the weights (`plain`) and with them (`weighted`). The vectors hold weighted rows of some types only; those of
`WEIGHTED` come from the reference itself, as a shared library without fused multiply-add, or stay as they are:

    cd llama.cpp/ggml/src
    gcc -O2 -ffp-contract=off -shared -fPIC -I. -I../include -I../../build/ggml/src ggml-quants.c ggml.c -o libggml.so -lm
"""
import ctypes
import json
import os
import struct
import sys
from pathlib import Path

VECTOR_ROWS = 8  # of random blocks, at the end of every vector
ROW = 512
ENCODED_ROWS = 3
WEIGHTED = {"q2_k": ("quantize_q2_K", 84, 256), "q3_k": ("quantize_q3_K", 110, 256), "q5_k": ("quantize_q5_K", 176, 256),
            "q4_1": ("quantize_q4_1", 20, 32), "q5_0": ("quantize_q5_0", 22, 32), "q5_1": ("quantize_q5_1", 24, 32),
            "iq4_nl": ("quantize_iq4_nl", 18, 32)}


def load(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    meta = head.pop("__metadata__")
    return {name: body[slice(*entry["data_offsets"])] for name, entry in head.items()}, meta


def blocks(tensors, block_len, block_bytes):
    """About 320 numbers: edge scales first."""
    raw, dequant = tensors["raw"], tensors["dequant"]
    count = len(raw) // block_bytes
    first = count - VECTOR_ROWS * ROW // block_len
    edge = {1: 16, 32: 8, 64: 4, 128: 2, 256: 1}[block_len]
    chosen = [*range(first, first + edge), count - 2, count - 1] if block_len < 256 else [first, count - 1]
    cut = lambda data, size: b"".join(data[size * i : size * (i + 1)] for i in chosen).hex()
    return {"raw": cut(raw, block_bytes), "dequant": cut(dequant, 4 * block_len)}


def reference(library, function, block_bytes, block_len, numbers, importance):
    """What the reference writes for rows of numbers."""
    quantize = getattr(library, function)
    quantize.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(len(numbers) // 4 // block_len * block_bytes)
    rows = ctypes.c_int64(len(numbers) // 4 // ROW)
    written = quantize(numbers, out, rows, ctypes.c_int64(ROW), importance)
    assert written == len(out), function
    return out.raw


def plain_floats():
    """Codecs whose bytes are the numbers: no reference is needed."""
    numbers = [0.0, -0.0, 1.0, -1.5, 1e-45, 3.4028234663852886e38, float("inf"), 0.1]
    single = struct.pack("<8f", *numbers)
    double = struct.pack("<8d", *struct.unpack("<8f", single))
    return {"f32": {"raw": single.hex(), "dequant": single.hex()}, "f64": {"raw": double.hex(), "dequant": single.hex()}}


def main():
    folder = Path(sys.argv[1])
    decode = plain_floats()
    for path in sorted([*folder.glob("ggml_*.safetensors"), *folder.glob("prism_*.safetensors")]):
        tensors, meta = load(path)
        if "block_elems" in meta:
            name = path.stem.split("_", 1)[1]
            decode[name] = blocks(tensors, int(meta["block_elems"]), int(meta["block_bytes"]))

    tensors, _ = load(folder / "ggml_quantize.safetensors")
    encode = {"input": tensors["input"][: 4 * ROW * ENCODED_ROWS].hex(), "importance": tensors["imatrix"].hex()}
    encode |= {"plain": {}, "weighted": {}}
    rows = len(tensors["input"]) // (4 * ROW)
    for name, data in tensors.items():
        if not name.startswith("raw."):
            continue
        codec, *weighted = name.lower().split(".")[1:]
        encode["weighted" if weighted else "plain"][codec] = data[: len(data) // rows * ENCODED_ROWS].hex()

    out = Path(__file__).resolve().parent / "codecs.json"
    if len(sys.argv) > 2:
        # Not all symbols are there, nor needed.
        library = ctypes.CDLL(sys.argv[2], mode=os.RTLD_LAZY)
        numbers = tensors["input"][: 4 * ROW * ENCODED_ROWS]
        for name, how in WEIGHTED.items():
            encode["weighted"][name] = reference(library, *how, numbers, tensors["imatrix"]).hex()
    else:
        kept = json.loads(out.read_text())["encode"]["weighted"]
        encode["weighted"] |= {name: kept[name] for name in WEIGHTED}
    out.write_text(json.dumps({"decode": decode, "encode": encode}, indent=1) + "\n")
    print(f"{out}: {len(decode)} codecs, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
