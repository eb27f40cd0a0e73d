#!/usr/bin/env python3
"""The trained tiny-llama in every container and encoding: what its stored numbers mean, and the logits they give.

    pip install -r requirements.txt
    mkdir tiny && WRITE=$PWD/tiny cargo test -p nibble-backend-cpu --test tiny_llama      # writes every directory and file
    SHARED=path/to/shared python3 tiny_llama.py tiny [NAME ...]        # reads them, writes tiny_llama.json

The writers are `crates/testkit/src/pack`; what they wrote is decoded here without them, by `SHARED/vectors/decoders.py`,
and run by transformers in float32. `tiny_llama.json` holds for each the SHA-256 of what was written, the best logits and the
logsumexp of each position, and the error: the root mean square of the difference to the logits of the plain model, over
all positions and tokens. The test writes the same bytes again (the hash says so) and compares.
"""
import argparse
import configparser
import hashlib
import json
import math
import os
import pathlib
import struct
import sys
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
SHARED = pathlib.Path(os.environ.get("SHARED", HERE.parent.parent / "shared"))
sys.path.insert(0, str(SHARED / "vectors"))
import decoders  # noqa: E402

F32 = np.float32
PLAIN = SHARED / "tiny/tiny-llama"
# "Tell me a story about a", without the chat template's frame, and what follows it in a story.
PROMPT = [394, 342, 14, 261, 458, 1692, 349, 938]
TOP = 4


# ---------------------------------------------------------------- safetensors
def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    body = data[8 + size:]
    return {n: (t["dtype"], tuple(t["shape"]), body[t["data_offsets"][0]:t["data_offsets"][1]])
            for n, t in head.items() if n != "__metadata__"}


NUMPY = {"I32": "<i4", "U32": "<u4", "I16": "<i2", "U8": "u1", "I8": "i1", "I64": "<i8", "F16": "<f2", "F32": "<f4",
         "F8_E4M3": "u1", "F8_E5M2": "u1", "BF16": "<u2"}


def array(tensor):
    """Integers as they are, floats in single precision, FP8 as bytes."""
    dtype, shape, data = tensor
    a = np.frombuffer(data, NUMPY[dtype]).reshape(shape)
    if dtype == "BF16":
        return (a.astype(np.uint32) << 16).view(F32)
    return a.astype(F32) if dtype in ("F16", "F32") else a


def e5m2(codes):
    return (codes.astype(np.uint16) << 8).view(np.float16).astype(F32)


def mlx(parts, settings):
    bits, group, mode = settings["bits"], settings["group_size"], settings.get("mode", "affine")
    words, scales = parts["weight"], parts["scales"]
    if mode == "affine":
        return decoders.mlx_affine(words, scales, parts["biases"], bits, group)
    codes = words.view(np.uint8).reshape(words.shape[0], -1)
    values = decoders.fp4_bytes(codes) if bits == 4 else decoders.e4m3(codes)
    scales = decoders.e4m3(scales) if mode == "nvfp4" else decoders.e8m0(scales)
    return values * np.repeat(scales, group, 1)


def gptq(parts, config):
    # Not rounded to half precision, which decoders.gptq does in the end.
    bits, groups = config["bits"], parts["g_idx"]
    codes = decoders.col_unpack(parts["qweight"].view(np.uint32), bits, len(groups))
    zeros = decoders.unpack_le(parts["qzeros"].view(np.uint32), bits, parts["scales"].shape[1]).astype(np.int32)
    zeros += config["checkpoint_format"] == "gptq"
    out = (codes - zeros[groups]).astype(F32) * parts["scales"][groups]
    check = decoders.gptq(parts["qweight"], parts["qzeros"], parts["scales"], groups, bits, config["checkpoint_format"] == "gptq_v2")
    assert np.array_equal(decoders.r16(out), check)
    return out.T


def awq(parts, config):
    group, order = config["group_size"], np.array([0, 4, 1, 5, 2, 6, 3, 7])

    def codes(words):
        wide = decoders.unpack_le(words.view(np.uint32), 4, words.shape[1] * 8)
        return wide.reshape(len(words), -1, 8)[..., order].reshape(len(words), -1).astype(np.int32)

    zeros, scales = (np.repeat(x, group, 0) for x in (codes(parts["qzeros"]), parts["scales"]))
    out = (codes(parts["qweight"]) - zeros).astype(F32) * scales
    assert np.array_equal(decoders.r16(out), decoders.awq(parts["qweight"], parts["qzeros"], parts["scales"], group))
    return out.T


def old_words(words, bits, n):
    """Whole codes in each word of 32 bits."""
    per = 32 // bits
    codes = (words.view(np.uint32)[..., None] >> (bits * np.arange(per, dtype=np.uint32))) & ((1 << bits) - 1)
    return codes.reshape(len(words), -1)[:, :n]


def compressed(parts, config):
    weights = config["config_groups"]["group_0"]["weights"]
    bits, scale = weights["num_bits"], parts["weight_scale"]
    if "weight_packed" not in parts:
        w = parts["weight"]
        return w.astype(F32) * scale if w.dtype == np.int8 else over_blocks(decoders.e4m3(w), scale)
    packed = parts["weight_packed"]
    if packed.dtype == np.uint8:
        values = decoders.fp4_bytes(packed)
        if "weight_global_scale" in parts:
            return values * np.repeat(decoders.e4m3(scale) / parts["weight_global_scale"], 16, 1)
        return values * np.repeat(decoders.e8m0(scale), 32, 1)
    rows, columns = parts["weight_shape"]
    dense = packed.shape[1] * 32 // bits < columns + 32 and packed.shape[1] == -(-columns * bits // 32)
    codes = decoders.unpack_le(packed.view(np.uint32), bits, columns) if dense else old_words(packed, bits, columns)
    zeros = np.full(scale.shape, 1 << (bits - 1))
    if "weight_zero_point" in parts:
        zeros = decoders.unpack_le(np.ascontiguousarray(parts["weight_zero_point"].T).view(np.uint32), bits, rows).T
    group_of = parts.get("weight_g_idx", np.arange(columns) // (columns // scale.shape[1]))
    return (codes.astype(np.int32) - zeros.astype(np.int32)[:, group_of]).astype(F32) * scale[:, group_of]


def over_blocks(values, scale):
    if scale.size == 1:
        return values * scale.reshape(())
    if scale.ndim == 1 or scale.shape[1] == 1:
        return values * scale.reshape(-1, 1)
    return values * np.repeat(np.repeat(scale, 128, 0), 128, 1)[:values.shape[0], :values.shape[1]]


def fp8(parts, config):
    scale = parts.get("weight_scale_inv", parts.get("weight_scale"))
    return over_blocks((e5m2 if parts["weight.dtype"] == "F8_E5M2" else decoders.e4m3)(parts["weight"]), scale)


def modelopt(parts, config):
    if config["quant_algo"] == "FP8":
        return fp8(parts, config)
    scale = decoders.e4m3(parts["weight_scale"]) * parts["weight_scale_2"]
    return decoders.fp4_bytes(parts["weight"]) * np.repeat(scale, 16, 1)


def bitnet(parts, config):
    scale = parts["weight_scale"]
    scale = 1 / scale if config["linear_class"] == "bitlinear" else scale
    return decoders.hf_bitnet(parts["weight"]).astype(F32) * scale


def exl2(parts, config):
    """As decoders.exl2, which rounds once more in the end."""
    words, place = parts["q_weight"].view(np.uint32), parts["q_invperm"]
    groups = parts["q_groups"].view(np.uint16).reshape(-1, 2).astype(int)
    roots = decoders.unpack_le(parts["q_scale"].view(np.uint32), 4, words.shape[1]).astype(F32) + 1
    steps = decoders.r16(parts["q_scale_max"] / F32(256))
    stored, row = np.zeros((len(place), words.shape[1]), F32), 0
    for i, (bits, first) in enumerate(groups):
        end = groups[i + 1][1] if i + 1 < len(groups) else len(words)
        rows = min((end - first) * 32 // bits, len(place) - row)
        codes = decoders.col_unpack(words[first:end], bits, rows)
        stored[row:row + rows] = (codes - (1 << (bits - 1))).astype(F32) * decoders.r16(roots[i] * roots[i] * steps[i])
        row += rows
    out = stored[place]
    check = decoders.exl2(parts["q_weight"], place, parts["q_scale"], parts["q_scale_max"], parts["q_groups"])
    assert row == len(place) and np.array_equal(decoders.r16(out), check)
    return out.T


def exl3(parts, config):
    book = "mcg" if "mcg" in parts else "mul1" if "mul1" in parts else "3inst"
    return decoders.exl3(parts["trellis"].view(np.uint16), book, parts["suh"], parts["svh"]).T


METHODS = {"gptq": (gptq, "qweight"), "awq": (awq, "qweight"), "compressed-tensors": (compressed, "weight_scale"),
           "fp8": (fp8, "weight_scale"), "modelopt": (modelopt, "weight_scale"), "bitnet": (bitnet, "weight_scale"),
           "exl2": (exl2, "q_weight"), "exl3": (exl3, "trellis")}


def dense_directory(folder):
    config = json.loads((folder / "config.json").read_text())
    stored = read_safetensors(folder / "model.safetensors")
    modules = {}
    for name, tensor in stored.items():
        module, part = name.rsplit(".", 1)
        modules.setdefault(module, {})[part] = array(tensor)
        modules[module][f"{part}.dtype"] = tensor[0]
    out = {}
    for module, parts in modules.items():
        if "quantization" in config:
            settings = config["quantization"]
            packed = mlx(parts, settings.get(module, settings)) if "scales" in parts else parts["weight"]
        else:
            method = config["quantization_config"]
            decode, mark = METHODS[method["quant_method"]]
            packed = decode(parts, method) if any(p.startswith(mark) for p in parts) else parts["weight"]
        out[f"{module}.weight"] = packed
    return out, config["tie_word_embeddings"]


# ---------------------------------------------------------------- GGUF
class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.take("I"), self.take("Q")
            return [self.value(element) for _ in range(count)]
        return self.take("BbHhIif?"[kind] if kind < 8 else "Qqd"[kind - 10])


def tables():
    grids = {n: array(t).astype(F32) for n, t in read_safetensors(SHARED / "vectors/ggml_iq_tables.safetensors").items()}
    return {n.removesuffix("_grid"): g for n, g in grids.items() if n.endswith("_grid")}


def table(path, kind, body, dims):
    """BitNet's TL1 or TL2, cut as the file beside it says"""
    config = configparser.ConfigParser()
    config.read(path.with_name("kernel_config.ini"))
    sections = ([int(section[key]) for key in ("m", "k", "bm", "bk", "bmm")] for section in map(config.__getitem__, config.sections()))
    tiles = next(t for t in sections if t[:2] == dims)
    return (decoders.tl1 if kind == 38 else decoders.tl2)(body, *tiles).astype(F32)


def dense_gguf(path, legacy):
    data = path.read_bytes()
    r = Reader(data)
    assert data[:4] == b"GGUF"
    r.at = 4
    assert r.take("I") == 3
    tensors, entries = r.take("Q"), r.take("Q")
    keys = {r.text(): r.value(r.take("I")) for _ in range(entries)}
    infos = []
    for _ in range(tensors):
        name, dims = r.text(), r.take("I")
        infos.append((name, [r.take("Q") for _ in range(dims)][::-1], r.take("I"), r.take("Q")))
    start = -(-r.at // 32) * 32
    tab, out = tables(), {}
    for name, dims, kind, offset in infos:
        count, body = math.prod(dims), np.frombuffer(data, np.uint8)[start + offset:]
        if f"{name}_scale" in {info[0] for info in infos}:
            w = table(path, kind, body, dims)
        elif kind == 36:
            w = decoders.i2_s(body[:count // 4 + 32], count)
        elif kind == 28:
            w = body[:8 * count].view("<f8").astype(F32)
        else:
            kind = decoders.GGML[142 if legacy and kind == 42 else kind]
            w = decoders.ggml(kind[0], body[:count // kind[1] * kind[2]].reshape(dims[0], -1), tab)
        out[name] = w.reshape(dims)
    for name in [name for name in out if name.endswith("_scale")]:
        out[name.removesuffix("_scale")] *= out.pop(name)
    rotation = {k.removeprefix("prism.hadamard."): v for k, v in keys.items() if k.startswith("prism.hadamard.")}
    if rotation:
        signs, values = {}, rotation.get("sign_values", [])
        for width in rotation.get("sign_widths", []):
            signs[width], values = np.array(values[:width]), values[width:]
        for name in rotation["weight_names"] + rotation.get("inverse_weight_names", []):
            out[name] = decoders.prism_inverse(out[name], rotation["block_size"], signs.get(out[name].shape[1]))
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    dense = {}
    for name, w in out.items():
        if name.startswith("blk."):
            _, layer, own, _ = name.split(".")
            if own in ("attn_q", "attn_k"):  # pairs that rotate together are neighbours
                w = w.reshape(-1, 32, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
            dense[f"model.layers.{layer}.{names[own]}.weight"] = w
        else:
            dense[{"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[name.rsplit(".", 1)[0]] + ".weight"] = w
    return dense, True


# ---------------------------------------------------------------- logits
def logits(dense, tied):
    config = json.loads((PLAIN / "config.json").read_text())
    config.update(tie_word_embeddings=tied, dtype="float32")
    with tempfile.TemporaryDirectory() as tmp:
        pathlib.Path(f"{tmp}/config.json").write_text(json.dumps(config))
        save_file({n: torch.from_numpy(np.array(w, F32)) for n, w in dense.items()}, f"{tmp}/model.safetensors",
                  metadata={"format": "pt"})
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            tmp, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    with torch.no_grad():
        return model.eval()(torch.tensor([PROMPT])).logits[0].double().numpy()


def plain():
    return {n: array(t) for n, t in read_safetensors(PLAIN / "model.safetensors").items()}, True


def case(path, reference):
    name = path.name.removesuffix(".gguf")
    tiles = path / "kernel_config.ini"
    files = [path] if path.is_file() else [path / "config.json", path / "model.safetensors"]
    if tiles.exists():
        path = path / "model.gguf"
        files = [path, tiles]
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()
    dense, tied = dense_gguf(path, "legacy" in name) if path.is_file() else dense_directory(path)
    rows = logits(dense, tied)
    number = lambda x: round(float(x), 6)
    top = [[[int(i), number(row[i])] for i in np.argsort(-row, kind="stable")[:TOP]] for row in rows]
    sums = [number(np.log(np.exp(row - row.max()).sum()) + row.max()) for row in rows]
    error = number(np.sqrt(((rows - reference) ** 2).mean()))
    return dict(name=name, sha256=digest, error=error, ids=PROMPT, top10=top, logsumexp=sums, greedy=[], greedy_gaps=[])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=pathlib.Path, help="what the test wrote")
    ap.add_argument("names", nargs="*", help="cases to do again (default: all)")
    ap.add_argument("--out", type=pathlib.Path, default=HERE / "tiny_llama.json")
    a = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    done = {c["name"]: c for c in json.loads(a.out.read_text())["prompts"]} if a.names and a.out.exists() else {}
    reference = logits(*plain())
    for path in sorted(a.folder.iterdir()):
        name = path.name.removesuffix(".gguf")
        if a.names and name not in a.names:
            continue
        done[name] = case(path, reference)
        print(f"{name}: error {done[name]['error']:.3g}", flush=True)
    lines = ",\n".join(json.dumps(done[n], separators=(",", ":")) for n in sorted(done))
    note = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32, eager"
    a.out.write_text(f'{{"note":{json.dumps(note)},"prompts":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
