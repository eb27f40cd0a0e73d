"""Cuts golden/codecs.json from the vectors folder: a few blocks of every codec, and one row for every encoder.

    python3 golden/codecs.py ../shared/vectors

`decode`: by codec, the bytes of some blocks and the numbers that the reference makes of them (little-endian f32), both
as hex digits. Blocks come from the random rows of a vector: its first ones, which hold the edge scales, and its last.
`encode`: rows of 512 numbers, a weight for each column, and the bytes that the reference quantizers write for them,
without the weights (`plain`) and with them (`weighted`).
"""
import json
import struct
import sys
from pathlib import Path

VECTOR_ROWS = 8  # of random blocks, at the end of every vector
ROW = 512
ENCODED_ROWS = 3


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
    out.write_text(json.dumps({"decode": decode, "encode": encode}, indent=1) + "\n")
    print(f"{out}: {len(decode)} codecs, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
