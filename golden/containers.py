#!/usr/bin/env python3
"""One random llama in every way that directories pack matrices, with the logits of the unpacked numbers.

    pip install -r requirements.txt
    SHARED=path/to/shared python3 containers.py [NAME ...]     # writes containers/NAME/ beside this script

Each directory holds the same model (one layer, width 128) packed by a writer of its own below, or by the tool that made
the format where it runs on a processor (mlx for its modes, compressed-tensors for its own). What a file means is decoded
by `SHARED/vectors/decoders.py`, which was written from the formats' descriptions and checked against their publishers' code;
transformers runs the decoded matrices in float32. The floats that stay floats are exact in the type they are stored in.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import zlib

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import make_models

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(pathlib.Path(os.environ.get("SHARED", HERE.parent.parent / "shared")) / "vectors"))
import decoders  # noqa: E402

F32 = np.float32
PROMPTS = [("one", 1), ("eleven", 11), ("forty", 40)]
CONFIG = dict(vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
              num_key_value_heads=2, head_dim=32, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=2,
              pad_token_id=0, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0))


def rng(name):
    return np.random.RandomState(zlib.crc32(name.encode()))


def weights():
    """The model in float32, by Hugging Face name."""
    shapes = dict(q=(128, 128), k=(64, 128), v=(64, 128), o=(128, 128))
    out = {"model.embed_tokens.weight": 0.12 * rng("embed").standard_normal((64, 128)),
           "model.norm.weight": 4.0 * (1 + 0.25 * rng("norm").standard_normal(128))}
    layer = "model.layers.0."
    for n in ("input_layernorm", "post_attention_layernorm"):
        out[f"{layer}{n}.weight"] = 1 + 0.25 * rng(n).standard_normal(128)
    for n, shape in shapes.items():
        out[f"{layer}self_attn.{n}_proj.weight"] = (1.6 if n in "qk" else 1.0) * rng(n).standard_normal(shape) / np.sqrt(shape[1])
    for n, shape in dict(gate=(256, 128), up=(256, 128), down=(128, 256)).items():
        out[f"{layer}mlp.{n}_proj.weight"] = rng(n).standard_normal(shape) / np.sqrt(shape[1])
    return {n: w.astype(np.float16).astype(F32) for n, w in out.items()}


def torch_of(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def bf16(x):
    return torch_of(x.astype(F32)).bfloat16()


def le_words(codes, bits):
    """Codes along the last axis as a dense LSB-first stream of 32-bit words."""
    stream = ((codes[..., None].astype(np.uint32) >> np.arange(bits)) & 1).astype(np.uint8)
    stream = stream.reshape(*codes.shape[:-1], -1)
    stream = np.concatenate([stream, np.zeros((*stream.shape[:-1], -stream.shape[-1] % 32), np.uint8)], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")


def round_to_groups(w, bits, group, symmetric=False):
    """Codes, scales and zeros (out, groups) of w (out, in)."""
    g = w.reshape(w.shape[0], -1, group)
    if symmetric:
        zero = np.full(g.shape[:2], 1 << (bits - 1))
        scale = np.abs(g).max(-1) / max((1 << (bits - 1)) - 1, 1)
    else:
        low, high = np.minimum(g.min(-1), 0), np.maximum(g.max(-1), 0)
        scale = (high - low) / ((1 << bits) - 1)
        zero = np.clip(np.rint(-low / scale), 1, (1 << bits) - 1)
    scale = scale.astype(np.float16)
    codes = np.clip(np.rint(g / scale[..., None].astype(F32)) + zero[..., None], 0, (1 << bits) - 1)
    return codes.reshape(w.shape).astype(np.int64), scale, zero.astype(np.int64)


def mlx_settings(**kw):
    return dict(quantization=kw, quantization_config=kw)


def mlx(bits, group, mode="affine", embed=True, own=None):
    import mlx.core as mx
    own = own or {}

    def pack(name, w):
        module = name[:-len(".weight")]
        b, g = own.get(module, (bits, group))
        if name.endswith("norm.weight") or (not embed and "embed" in name):
            return {name: bf16(w)}, bf16(w).float().numpy()
        if mode == "affine":
            q, s, z = mx.quantize(mx.array(w).astype(mx.bfloat16), g, b)
            s, z = np.array(s.astype(mx.float32)), np.array(z.astype(mx.float32))
            q = np.array(q)
            out = {name: torch_of(q), f"{module}.scales": bf16(s), f"{module}.biases": bf16(z)}
            return out, decoders.mlx_affine(q, s, z, b, g)
        q, s = (np.array(x) for x in mx.quantize(mx.array(w).astype(mx.bfloat16), g, b, mode))
        codes = q.view(np.uint8).reshape(q.shape[0], -1)
        values = decoders.fp4_bytes(codes) if b == 4 else decoders.e4m3(codes)
        scale = decoders.e4m3(s) if mode == "nvfp4" else decoders.e8m0(s)
        return {name: torch_of(q), f"{module}.scales": torch_of(s)}, values * np.repeat(scale, g, 1)

    settings = dict(group_size=group, bits=bits, mode=mode)
    settings.update({m: dict(group_size=g, bits=b) for m, (b, g) in own.items()})
    return pack, mlx_settings(**settings)


def plain(name, w):
    """Embeddings and norms, in half precision."""
    return {name: torch_of(w.astype(np.float16))}, w


def packed_only(matrix):
    return lambda name, w: matrix(name[:-len(".weight")], w) if "_proj" in name else plain(name, w)


def gptq(bits, group, v2=False, act_order=False):
    def pack(module, w):
        k = w.shape[1]
        group_of = np.arange(k) // group
        if act_order:
            group_of = rng(module + "order").permutation(group_of)
        order = np.argsort(group_of, kind="stable")
        codes, scale, zero = round_to_groups(w[:, order], bits, group)
        back = np.argsort(order, kind="stable")
        codes = codes[:, back]
        stored = zero.T if v2 else zero.T - 1
        out = {"qweight": le_words(codes, bits).T.copy().view(np.int32), "qzeros": le_words(stored, bits).view(np.int32),
               "scales": scale.T.copy(), "g_idx": group_of.astype(np.int32)}
        dense = ((codes.T - zero.T[group_of]).astype(F32) * scale.T.astype(F32)[group_of]).T
        check = decoders.gptq(out["qweight"], out["qzeros"], out["scales"], group_of, bits, v2)
        assert np.array_equal(decoders.r16(dense.T), check)
        return {f"{module}.{n}": torch_of(x) for n, x in out.items()}, dense

    settings = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=act_order, sym=False,
                    checkpoint_format="gptq_v2" if v2 else "gptq")
    return packed_only(pack), dict(quantization_config=settings)


def awq(group):
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def words(codes):  # (rows, out) -> (rows, out / 8)
        eight = codes.reshape(codes.shape[0], -1, 8)[..., order]
        return (eight.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(-1).astype(np.uint32).view(np.int32)

    def pack(module, w):
        codes, scale, zero = round_to_groups(w, 4, group)
        out = {"qweight": words(codes.T), "qzeros": words(zero.T), "scales": scale.T.copy()}
        dense = ((codes - np.repeat(zero, group, 1)).astype(F32) * np.repeat(scale.astype(F32), group, 1))
        assert np.array_equal(decoders.r16(dense.T), decoders.awq(out["qweight"], out["qzeros"], out["scales"], group))
        return {f"{module}.{n}": torch_of(x) for n, x in out.items()}, dense

    return packed_only(pack), dict(quantization_config=dict(quant_method="awq", bits=4, group_size=group, zero_point=True,
                                                            version="gemm"))


def compressed(bits, group, symmetric, old=False, act_order=False):
    def pack(module, w):
        k = w.shape[1]
        group_of = np.arange(k) // group
        if act_order:
            group_of = rng(module + "order").permutation(group_of)
        order = np.argsort(group_of, kind="stable")
        codes, scale, zero = round_to_groups(w[:, order], bits, group, symmetric)
        codes = codes[:, np.argsort(order, kind="stable")]
        if old:  # whole codes in each word
            n = 32 // bits
            full = np.pad(codes, ((0, 0), (0, -k % n))).reshape(w.shape[0], -1, n).astype(np.uint32)
            words = (full << (bits * np.arange(n, dtype=np.uint32))).sum(-1).astype(np.uint32)
        else:
            words = le_words(codes, bits)
        out = {"weight_packed": words.view(np.int32), "weight_scale": scale, "weight_shape": np.array(w.shape, np.int64)}
        if not symmetric:
            out["weight_zero_point"] = le_words(zero.T, bits).T.copy().view(np.int32)
        if act_order:
            out["weight_g_idx"] = group_of.astype(np.int32)
        dense = (codes - zero[:, group_of]).astype(F32) * scale.astype(F32)[:, group_of]
        return {f"{module}.{n}": torch_of(x) for n, x in out.items()}, dense

    return packed_only(pack), compressed_settings("pack-quantized", num_bits=bits, group_size=group, symmetric=symmetric, type="int",
                                                  strategy="group", actorder="group" if act_order else None)


def compressed_settings(form, **kw):
    return dict(quantization_config=dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"],
                                         config_groups=dict(group_0=dict(targets=["Linear"], weights=kw))))


def int8():
    def pack(module, w):
        scale = (np.abs(w).max(1, keepdims=True) / 127).astype(np.float16)
        codes = np.clip(np.rint(w / scale.astype(F32)), -127, 127).astype(np.int8)
        return {f"{module}.weight": torch_of(codes), f"{module}.weight_scale": torch_of(scale)}, codes.astype(F32) * scale.astype(F32)

    return packed_only(pack), compressed_settings("int-quantized", num_bits=8, symmetric=True, type="int", strategy="channel")


def to_e4m3(x):
    f8 = torch_of(x.astype(F32)).to(torch.float8_e4m3fn)
    return f8, decoders.e4m3(f8.view(torch.uint8).numpy())


def fp8_rows():
    def pack(module, w):
        scale = (np.abs(w).max(1, keepdims=True) / 448).astype(F32)
        f8, values = to_e4m3(w / scale)
        return {f"{module}.weight": f8, f"{module}.weight_scale": torch_of(scale)}, values * scale

    return packed_only(pack), compressed_settings("float-quantized", num_bits=8, symmetric=True, type="float", strategy="channel")


def fp8_blocks(size):
    def pack(module, w):
        rows, columns = (-(-n // size) for n in w.shape)
        scale = np.zeros((rows, columns), F32)
        for r in range(rows):
            for c in range(columns):
                scale[r, c] = np.abs(w[r * size:(r + 1) * size, c * size:(c + 1) * size]).max() / 448
        full = np.repeat(np.repeat(scale, size, 0), size, 1)[:w.shape[0], :w.shape[1]]
        f8, values = to_e4m3(w / full)
        return {f"{module}.weight": f8, f"{module}.weight_scale_inv": torch_of(scale)}, values * full

    return packed_only(pack), dict(quantization_config=dict(quant_method="fp8", weight_block_size=[size, size]))


def to_fp4(x):
    """Codes of the nearest four-bit floats."""
    return np.abs(x[..., None] - decoders.KV_FP4).argmin(-1).astype(np.uint8)


def nvfp4(names, settings, divides):
    def pack(module, w):
        factor = np.abs(w).max() / (6 * 448)
        g = w.reshape(w.shape[0], -1, 16)
        f8, scale = to_e4m3(np.abs(g).max(-1) / 6 / factor)
        codes = to_fp4(g / (scale * factor)[..., None]).reshape(w.shape)
        factor = F32(1 / factor) if divides else F32(factor)
        real = scale / factor if divides else scale * factor
        out = {names[0]: torch_of(codes[:, ::2] | codes[:, 1::2] << 4), "weight_scale": f8, names[1]: torch_of(np.array([factor], F32))}
        return {f"{module}.{n}": x for n, x in out.items()}, decoders.KV_FP4[codes] * np.repeat(real, 16, 1)

    return packed_only(pack), settings


def exl2(plan):
    """`plan`: bits and number of inputs of each group, by the width of the input."""

    def pack(module, w):
        outputs, k = w.shape
        stored = rng(module + "perm").permutation(k)  # original input of each stored row
        words, groups, scales, most, at = [], [], [], [], 0
        dense = np.zeros((k, outputs), F32)  # not rounded to half precision, as the reference's kernels do in the end
        for bits, count in plan[k]:
            rows = w[:, stored[at:at + count]]  # (out, count)
            peak = np.abs(rows).max(1) / (1 << (bits - 1))
            top = np.float16(peak.max() / 256 * 256)
            code = np.clip(np.rint(np.sqrt(peak / top.astype(F32) * 256)) - 1, 0, 15)
            smax = decoders.r16(np.array(top.astype(F32) / 256))
            scale = decoders.r16((code + 1) ** 2 * smax)
            q = np.clip(np.rint(rows / scale[:, None]) + (1 << (bits - 1)), 0, (1 << bits) - 1).astype(np.int64)
            dense[stored[at:at + count]] = (q - (1 << (bits - 1))).astype(F32).T * scale
            groups += [bits, sum(x.shape[1] for x in words)]
            words.append(le_words(q, bits))
            scales.append(code.astype(np.int64))
            most.append(top)
            at += count
        assert at == k
        inverse = np.argsort(stored).astype(np.int32)
        out = {"q_weight": np.concatenate(words, 1).T.copy().view(np.int32), "q_groups": np.array(groups, np.uint16).view(np.int16),
               "q_scale": le_words(np.stack(scales), 4).view(np.int32), "q_scale_max": np.array(most, np.float16), "q_invperm": inverse}
        check = decoders.exl2(out["q_weight"], out["q_invperm"], out["q_scale"], out["q_scale_max"], out["q_groups"])
        assert np.array_equal(decoders.r16(dense), check)
        return {f"{module}.{n}": torch_of(x) for n, x in out.items()}, dense.T.copy()

    return packed_only(pack), dict(quantization_config=dict(quant_method="exl2", version="0.3.2", bits=4.0, head_bits=16))


def exl3(bits, book):
    def pack(module, w):
        outputs, k = w.shape
        wide = -(-outputs // 128) * 128
        r = rng(module + "trellis")
        trellis = r.randint(0, 65536, (k // 16, wide // 16, 16 * bits)).astype(np.uint16)
        # Random states are about normal with spread 1.24: signs and scales make a matrix of the usual spread of it.
        suh = (r.choice([-1.0, 1.0], k) * (0.8 + 0.4 * r.rand(k)) * w.std() / 1.24).astype(np.float16)
        svh = (r.choice([-1.0, 1.0], wide) * (0.8 + 0.4 * r.rand(wide))).astype(np.float16)
        out = {"trellis": trellis.view(np.int16), "suh": suh, "svh": svh}
        if book != "3inst":
            out[book] = np.array({"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}[book], np.uint32).view(np.int32)
        dense = decoders.exl3(trellis, book, suh, svh).T[:outputs].copy()
        return {f"{module}.{n}": torch_of(x) for n, x in out.items()}, dense

    return packed_only(pack), dict(quantization_config=dict(quant_method="exl3", version="0.0.1", bits=bits, head_bits=16, codebook=book))


def bitnet():
    def pack(module, w):
        mean = np.abs(w).mean()
        t = np.clip(np.rint(w / mean), -1, 1).astype(np.int8)
        q = (t + 1).astype(np.uint8).reshape(4, w.shape[0] // 4, w.shape[1])
        scale = torch.tensor([mean]).bfloat16()
        packed = q[0] | q[1] << 2 | q[2] << 4 | q[3] << 6
        assert np.array_equal(decoders.hf_bitnet(packed), t)
        return {f"{module}.weight": torch_of(packed), f"{module}.weight_scale": scale}, t.astype(F32) * float(scale)

    return packed_only(pack), dict(quantization_config=dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline",
                                                            modules_to_not_convert=["lm_head"]))


LAYER = "model.layers.0."
MIXED = {128: [(6, 32), (5, 64), (3, 32)], 256: [(8, 32), (4, 128), (3, 64), (2, 32)]}
TAIL = {128: [(4, 32), (4, 64), (2, 16), (2, 16)], 256: [(5, 128), (3, 96), (2, 32)]}
MODELOPT = dict(quantization_config=dict(quant_method="modelopt", quant_algo="NVFP4"))
CONTAINERS = {
    "mlx-2-32": lambda: mlx(2, 32),
    "mlx-3-64": lambda: mlx(3, 64),
    "mlx-4-64": lambda: mlx(4, 64),
    "mlx-5-128": lambda: mlx(5, 128),
    "mlx-6-64": lambda: mlx(6, 64),
    "mlx-8-32": lambda: mlx(8, 32),
    "mlx-mixed": lambda: mlx(3, 64, own={f"{LAYER}mlp.down_proj": (6, 64), f"{LAYER}self_attn.v_proj": (4, 32)}, embed=False),
    "mlx-mxfp4": lambda: mlx(4, 32, "mxfp4"),
    "mlx-nvfp4": lambda: mlx(4, 16, "nvfp4"),
    "mlx-mxfp8": lambda: mlx(8, 32, "mxfp8"),
    "gptq-2": lambda: gptq(2, 64, v2=True),
    "gptq-3": lambda: gptq(3, 32),
    "gptq-4": lambda: gptq(4, 128),
    "gptq-4-order": lambda: gptq(4, 32, act_order=True),
    "gptq-8": lambda: gptq(8, 128),
    "awq": lambda: awq(64),
    "ct-int4": lambda: compressed(4, 128, True),
    "ct-int4-asym": lambda: compressed(4, 32, False),
    "ct-int3-order": lambda: compressed(3, 64, False, act_order=True),
    "ct-int6-old": lambda: compressed(6, 64, True, old=True),
    "ct-int8": int8,
    "ct-fp8": fp8_rows,
    "ct-nvfp4": lambda: nvfp4(("weight_packed", "weight_global_scale"), compressed_settings(
        "nvfp4-pack-quantized", num_bits=4, group_size=16, symmetric=True, type="float", strategy="tensor_group"), True),
    "modelopt-nvfp4": lambda: nvfp4(("weight", "weight_scale_2"), MODELOPT, False),
    "fp8-blocks": lambda: fp8_blocks(128),
    "exl2-mixed": lambda: exl2(MIXED),
    "exl2-tail": lambda: exl2(TAIL),
    "exl3-2-mul1": lambda: exl3(2, "mul1"),
    "exl3-3-mcg": lambda: exl3(3, "mcg"),
    "exl3-4-3inst": lambda: exl3(4, "3inst"),
    "bitnet": bitnet,
}


def build(name, out):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pack, settings = CONTAINERS[name]()
    stored, dense = {}, {}
    for n, w in weights().items():
        tensors, numbers = pack(n, w)
        stored.update({k: v.contiguous() for k, v in tensors.items()})
        dense[n] = torch_of(np.asarray(numbers, F32))
    save_file(stored, folder / "model.safetensors", metadata={"format": "mlx" if name.startswith("mlx") else "pt"})
    config = transformers.AutoConfig.for_model("llama", **CONFIG)
    with tempfile.TemporaryDirectory() as tmp:
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(tmp)
        save_file(dense, f"{tmp}/model.safetensors", metadata={"format": "pt"})
        model = make_models.load(pathlib.Path(tmp))
        text = json.loads(pathlib.Path(f"{tmp}/config.json").read_text())
    text.update(settings)
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    make_models.write_golden(folder / "golden.json", make_models.golden(model, "the unpacked matrices as a plain llama"))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", help="directories to write (default: all)")
    ap.add_argument("--out", type=pathlib.Path, default=HERE / "containers")
    a = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    make_models.prompts = lambda: [(n, np.random.RandomState(k).randint(3, 64, k).tolist()) for n, k in PROMPTS]
    make_models.GREEDY = 4
    for name in a.names or CONTAINERS:
        build(name, a.out)
        size = sum(f.stat().st_size for f in (a.out / name).iterdir())
        print(f"{name}: {size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
