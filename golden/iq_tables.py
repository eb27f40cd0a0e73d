"""Packs the grids of the iq1, iq2 and iq3 codecs into crates/quant/src/iq_grids.bin.

    python3 golden/iq_tables.py ../shared/vectors/ggml_iq_tables.safetensors

Input: the tables as the reference expands them, one signed byte a number. Output: one little-endian u16 a point, two
bits a number (eight numbers of up to four levels) or four bits a number (four numbers of eight levels), first lowest.
"""
import json
import struct
import sys
from pathlib import Path

GRIDS = [
    ("iq2xxs_grid", 8, [8, 25, 43]),
    ("iq2xs_grid", 8, [8, 25, 43]),
    ("iq2s_grid", 8, [8, 25, 43]),
    ("iq3xxs_grid", 4, [4, 12, 20, 28, 36, 44, 52, 62]),
    ("iq3s_grid", 4, [1, 3, 5, 7, 9, 11, 13, 15]),
    ("iq1s_grid", 8, [-1, 0, 1]),
]


def main():
    data = Path(sys.argv[1]).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    packed = bytearray()
    for name, width, levels in GRIDS:
        begin, end = head[name]["data_offsets"]
        numbers = struct.unpack(f"{end - begin}b", body[begin:end])
        for at in range(0, len(numbers), width):
            point = numbers[at : at + width]
            packed += struct.pack("<H", sum(levels.index(n) << (16 // width * k) for k, n in enumerate(point)))
    out = Path(__file__).resolve().parent.parent / "crates/quant/src/iq_grids.bin"
    out.write_bytes(packed)
    print(f"{out}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
