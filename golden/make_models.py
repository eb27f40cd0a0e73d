#!/usr/bin/env python3
"""Random tiny models of every architecture, with the logits that transformers computes for them.

    pip install -r requirements.txt
    python3 make_models.py [NAME ...]        # writes models/NAME/ beside this script

Everything is a function of the tables below: weights come from a frozen generator (numpy's `RandomState`), seeded by
the tensor's name and the model's seed, and are rounded to the type they are stored in *before* the reference runs. The
reference is float32, eager attention, on a CPU. The seed is the first one whose greedy path has no near-ties.

Spread is chosen so that mistakes show: attention is sharp, windows are shorter than the longest prompt, soft-caps are
low, rope scalings start at position 32. `blind` lists config changes that a careless engine would make (no window, no
scaling ...); the script fails unless each of them moves some logit of the long prompt by at least `VISIBLE`.
"""
import argparse
import copy
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import zlib

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # the reference is eager; nothing is worth compiling at this size

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 288  # 3 special tokens, 256 bytes, 29 merges
PROMPTS = [("one", 1), ("eleven", 11), ("forty", 40), ("hundred", 100)]
GREEDY = 16
GAP = 0.02  # smallest lead of a greedy choice over the second
DISTINCT = 6  # tokens that each of the longer greedy paths has, at least
VISIBLE = 0.25

BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=0,
            eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
ROPE = dict(rope_type="default", rope_theta=10000.0)
MOE = dict(num_hidden_layers=2, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, decoder_sparse_step=1,
           rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
OSS_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=32)
BITNET = dict(quant_method="bitnet", quantization_mode="offline", modules_to_not_convert=["lm_head"])
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
GEMMA3_ROPE = dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0),
                   full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0))
QWEN35_ROPE = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_interleaved=True,
                   mrope_section=[2, 1, 1])
DYNAMIC_NOTE = (
    "Dynamic NTK: with n = the largest position of a forward pass + 1 and m = max_position_embeddings, n <= m uses the "
    "unscaled base b; n > m uses b * (factor * n / m - (factor - 1)) ** (d / (d - 2)), d the rotated width, for every "
    "position of that pass. `top10`, `logsumexp` and `greedy` are each from one pass over the whole sequence with fresh "
    "state, so every greedy step rotates all keys anew by its own n. `greedy_cached` is generation with a key-value "
    "cache, as `generate` does: keys keep the rotation of the pass that wrote them. transformers keeps the "
    "frequencies of the largest n seen until a pass has n < m (strictly), so reusing one of its models for a shorter "
    "prompt of m tokens or more gives other numbers than these.")

# name: model_type, changes to BASE, and options:
#   stored  type of a tensor by its name, first match wins ("" matches all)
#   legacy  write rope settings as `rope_theta` + `rope_scaling`, as files from before transformers 5 do
#   blind   changes of the config that must be visible in the logits
#   shards  number of safetensors files
#   bitnet  `linear_class` of a packed ternary model
#   mxfp4   experts are packed as gpt-oss packs them
MODELS = {
    "llama": ("llama", dict(tie_word_embeddings=True, rope_parameters=ROPE),
              dict(stored=[("norm", "F32"), ("embed", "F16"), ("", "BF16")], legacy=True,
                   blind=[dict(rope_parameters=dict(ROPE, rope_theta=20000.0))])),
    "mistral": ("mistral", dict(sliding_window=16, rope_parameters=ROPE), dict(legacy=True, blind=[dict(sliding_window=None)])),
    "llama-rope-llama3": ("llama", dict(tie_word_embeddings=True, rope_parameters=LLAMA3),
                          dict(blind=[dict(rope_parameters=ROPE)])),
    "llama-rope-linear": ("llama", dict(rope_parameters=dict(ROPE, rope_type="linear", factor=4.0)),
                          dict(legacy=True, blind=[dict(rope_parameters=ROPE)])),
    "llama-rope-dynamic": ("llama", dict(max_position_embeddings=32, rope_parameters=dict(ROPE, rope_type="dynamic", factor=4.0)),
                           dict(note=DYNAMIC_NOTE, cached=True, blind=[dict(rope_parameters=ROPE)])),
    "llama-rope-yarn": ("llama", dict(rope_parameters=YARN),
                        dict(legacy=True, blind=[dict(rope_parameters=ROPE), dict(rope_parameters=dict(YARN, attention_factor=1.0))])),
    "qwen2": ("qwen2", dict(num_attention_heads=4, rope_parameters=dict(ROPE, rope_theta=1000000.0), rms_norm_eps=1e-6),
              dict(blind=[dict(rope_parameters=ROPE)])),
    "qwen2-sharded": ("qwen2", dict(num_attention_heads=4, rope_parameters=dict(ROPE, rope_theta=1000000.0), rms_norm_eps=1e-6),
                      dict(weights_of="qwen2", shards=2)),
    "qwen3": ("qwen3", dict(head_dim=32, rope_parameters=dict(ROPE, rope_theta=1000000.0), rms_norm_eps=1e-6, tie_word_embeddings=True),
              dict(stored=[("", "F16")], legacy=True, blind=[dict(rope_parameters=ROPE)])),
    "gemma2": ("gemma2", dict(tie_word_embeddings=True, query_pre_attn_scalar=16, sliding_window=12, attn_logit_softcapping=4.0,
                              final_logit_softcapping=12.0, rms_norm_eps=1e-6, rope_parameters=ROPE),
               dict(blind=[dict(sliding_window=128), dict(attn_logit_softcapping=None), dict(final_logit_softcapping=None)])),
    "gemma2-scale": ("gemma2", dict(tie_word_embeddings=True, head_dim=32, query_pre_attn_scalar=12, sliding_window=24,
                                    attn_logit_softcapping=8.0, final_logit_softcapping=15.0, rms_norm_eps=1e-6, rope_parameters=ROPE),
                     dict(blind=[dict(query_pre_attn_scalar=32)])),
    "gemma3": ("gemma3_text", dict(tie_word_embeddings=True, num_hidden_layers=6, intermediate_size=64, query_pre_attn_scalar=16,
                                   sliding_window=20, layer_types=5 * ["sliding_attention"] + ["full_attention"], rms_norm_eps=1e-6,
                                   rope_parameters=GEMMA3_ROPE),
               dict(blind=[dict(sliding_window=128),
                           dict(rope_parameters=dict(GEMMA3_ROPE, full_attention=GEMMA3_ROPE["sliding_attention"])),
                           dict(rope_parameters=dict(GEMMA3_ROPE, sliding_attention=dict(rope_type="default", rope_theta=1000000.0)))])),
    "qwen3-moe": ("qwen3_moe", dict(MOE, norm_topk_prob=True),
                  dict(stored=[("", "F16")], blind=[dict(norm_topk_prob=False), dict(num_experts_per_tok=2)])),
    "qwen3-moe-mixed": ("qwen3_moe", dict(MOE, num_hidden_layers=3, norm_topk_prob=False, mlp_only_layers=[1], head_dim=32),
                        dict(blind=[dict(norm_topk_prob=True)])),
    "bitnet-auto": ("llama", dict(tie_word_embeddings=True, rope_parameters=ROPE), dict(bitnet="autobitlinear")),
    "bitnet-linear": ("llama", dict(tie_word_embeddings=True, rope_parameters=ROPE), dict(bitnet="bitlinear")),
    "bitnet": ("bitnet", dict(tie_word_embeddings=True, hidden_size=256, intermediate_size=256, num_hidden_layers=1, head_dim=64,
                              rope_parameters=ROPE, hidden_act="relu2"), dict(bitnet="autobitlinear")),
    "gpt-oss": ("gpt_oss", dict(intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=16,
                                rope_parameters=OSS_ROPE),
                dict(mxfp4=True, blind=[dict(sliding_window=128), dict(num_experts_per_tok=1), dict(swiglu_limit=1.0),
                                        dict(rope_parameters=dict(OSS_ROPE, truncate=True)), dict(swiglu_alpha=1.0)])),
    "qwen3.5": ("qwen3_5_text", dict(num_hidden_layers=4, head_dim=32, linear_conv_kernel_dim=4, linear_key_head_dim=16,
                                     linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6,
                                     full_attention_interval=4, rms_norm_eps=1e-6, rope_parameters=QWEN35_ROPE),
                dict(stored=[("A_log", "F32"), ("linear_attn.norm", "F32"), ("", "BF16")],
                     blind=[dict(rope_parameters=dict(QWEN35_ROPE, partial_rotary_factor=1.0, mrope_section=[6, 5, 5]))])),
}
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# A tied embedding tends to answer with the token it was given: it is kept small beside what the layers add, and the
# final norm makes up for it. (spread of the embedding, gain of the final norm)
GAINS = dict(llama=(0.12, 4.0), qwen3=(0.12, 4.0), gemma2=(0.04, 10.0), gemma3_text=(0.04, 10.0), bitnet=(0.05, 9.0))
UNIT_OFFSET_NORMS = ("gemma2", "gemma3_text", "qwen3_5_text")  # stored as weight - 1


def tokenizer():
    """A byte-level BPE with Qwen2's split: 3 special tokens, 256 bytes, 29 merges learned from one sentence."""
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    text = "the small reference is the meaning, and the fast path is right when it agrees with the small reference"
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=VOCAB, min_frequency=1, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    assert t.get_vocab_size() == VOCAB
    return t


def write_tokenizer(folder):
    (folder / "tokenizer.json").write_text(tokenizer().to_str(pretty=False) + "\n")
    config = dict(tokenizer_class="Qwen2Tokenizer", bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                  add_bos_token=False, add_prefix_space=False, clean_up_tokenization_spaces=False, unk_token=None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def prompts():
    return [(name, np.random.RandomState(n).randint(3, VOCAB, n).tolist()) for name, n in PROMPTS]


def values(name, shape, model_type, gains, seed):
    """The numbers of one tensor, by its role."""
    spread, gain = gains
    noise = np.random.RandomState(zlib.crc32(f"{seed}/{name}".encode())).standard_normal(shape)
    if name.endswith("A_log"):
        x = np.log(np.linspace(0.5, 4.0, shape[0]))
    elif name.endswith("dt_bias"):
        x = -1.0 + noise
    elif "norm" in name:
        offset = model_type in UNIT_OFFSET_NORMS and "linear_attn" not in name
        x = (gain if name == "model.norm.weight" else 1.0) * (1.0 + 0.25 * noise) - offset
    elif name.endswith("bias"):
        x = 0.5 * noise
    elif name.endswith("sinks"):
        x = 2.0 * noise
    elif "mlp.experts" in name:  # stored as (experts, in, out); large enough to meet the limit of the gates
        x = noise * (3.0 if "gate_up" in name else 1.0) / np.sqrt(shape[-2])
    elif "conv1d" in name:
        x = 0.5 * noise
    elif "lm_head" in name:
        x = 0.4 * noise
    elif "embed_tokens" in name:
        x = spread * noise
    else:
        sharp = re.search(r"[qk]_proj|mlp\.gate\.|mlp\.router\.|in_proj_[ab]\.", name)
        x = noise * (1.6 if sharp else 1.0) / np.sqrt(shape[-1])
    return torch.from_numpy(x.astype(np.float32))


def config_for(name, changes=()):
    model_type, kw, _ = MODELS[name]
    return AutoConfig.for_model(model_type, **copy.deepcopy({**BASE, **kw, **dict(changes)}))


def tensors(name, seed):
    """Names and shapes as `save_pretrained` writes them, filled by `values`, in the types of the file."""
    model_type, _, options = MODELS[name]
    with tempfile.TemporaryDirectory() as tmp:
        AutoModelForCausalLM.from_config(config_for(name)).save_pretrained(tmp)
        shapes = {n: tuple(t.shape) for n, t in load_file(f"{tmp}/model.safetensors").items()}
    stored = options.get("stored", [("", "BF16")])
    gains = (0.8, 1.0) if "lm_head.weight" in shapes else GAINS["bitnet" if "bitnet" in options else model_type]
    out = {}
    for n in sorted(shapes):
        dtype = next(d for part, d in stored if part in n)
        x = values(n, shapes[n], model_type, gains, seed).to(DTYPES[dtype])
        assert torch.isfinite(x).all()
        out[n] = x
    return out


def ternary(dense, linear_class):
    """Splits `dense` into packed ternary matrices (as transformers' BitNet integration stores them) and their floats."""
    packed, plain = {}, {}
    for n, w in dense.items():
        if not n.endswith("_proj.weight"):
            packed[n] = plain[n] = w
            continue
        mean = w.float().abs().mean()
        t = (w.float() / mean).round().clamp(-1, 1)
        q = (t + 1).to(torch.uint8).view(4, w.shape[0] // 4, w.shape[1])
        packed[n] = (q[0] | q[1] << 2 | q[2] << 4 | q[3] << 6).contiguous()
        scale = (mean if linear_class == "autobitlinear" else 1 / mean).bfloat16().view(1)
        packed[n + "_scale"] = scale
        plain[n] = t * scale.float() if linear_class == "autobitlinear" else t / scale.float()
    return packed, plain


def mxfp4(dense):
    """Splits `dense` into tensors with experts packed as gpt-oss packs them (`_blocks`, `_scales`), and their floats."""
    table = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    packed, plain = {}, {}
    for n, w in dense.items():
        if not n.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[n] = plain[n] = w
            continue
        rows = w.float().transpose(1, 2).contiguous().numpy()  # (experts, out, in)
        groups = rows.reshape(*rows.shape[:2], -1, 32)
        exponent = np.floor(np.log2(np.abs(groups).max(-1))) - 2
        unit = groups / np.exp2(exponent)[..., None]
        codes = np.abs(unit[..., None] - table).argmin(-1).astype(np.uint8)
        packed[n + "_blocks"] = torch.from_numpy(codes[..., ::2] | codes[..., 1::2] << 4)
        packed[n + "_scales"] = torch.from_numpy((exponent + 127).astype(np.uint8))
        values = (table[codes] * np.exp2(exponent)[..., None]).reshape(rows.shape).astype(np.float32)
        plain[n] = torch.from_numpy(values).transpose(1, 2).contiguous()
    return packed, plain


def write_config(folder, config, options, dtype, quantization=None):
    config.architectures = [type(AutoModelForCausalLM.from_config(config)).__name__]
    config.save_pretrained(folder)
    path = folder / "config.json"
    c = json.loads(path.read_text())
    c["dtype"] = dtype
    if options.get("legacy"):
        rope = c.pop("rope_parameters")
        c["rope_theta"] = rope.pop("rope_theta")
        c["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
        c["torch_dtype"] = c.pop("dtype")
    if quantization:
        c["quantization_config"] = quantization
    path.write_text(json.dumps(c, indent=2) + "\n")


def write_weights(folder, weights, shards):
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, where = sorted(weights), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        where.update(dict.fromkeys(part, file))
        save_file({n: weights[n] for n in part}, folder / file, metadata={"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in weights.values())
    index = dict(metadata=dict(total_size=total), weight_map=where)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    torch.nn.Module.float(model)  # BitNet buffers arrive in the type of the file
    for m in model.modules():
        if type(m).__name__ == "BitLinear":
            m.dtype = torch.float32
    return model


def load_dense(name, weights):
    """The model with matrices that are not packed."""
    with tempfile.TemporaryDirectory() as tmp:
        config_for(name).save_pretrained(tmp)
        save_file({n: t.float() for n, t in weights.items()}, f"{tmp}/model.safetensors", metadata={"format": "pt"})
        return load(tmp)


def fresh(model):
    """Forgets the frequencies that a dynamic rope kept from an earlier pass."""
    rope = getattr(model.model, "rotary_emb", None)
    if rope is not None and getattr(rope, "rope_type", None) == "dynamic":
        rope.register_buffer("inv_freq", rope.original_inv_freq.clone(), persistent=False)
        rope.max_seq_len_cached = rope.original_max_seq_len
    return model


@torch.no_grad()
def logits(model, ids):
    return fresh(model)(torch.tensor([ids]), use_cache=False).logits[0].float()


def greedy(model, ids):
    """The next tokens, each from a pass over all before it, and how far each led the second choice."""
    path, gaps = [], []
    for _ in range(GREEDY):
        v, i = logits(model, ids + path)[-1].topk(2)
        gaps.append(round(float(v[0] - v[1]), 5))
        path.append(int(i[0]))
    return path, gaps


def telling(model):
    """Whether the greedy paths have no near-ties and are no mere repetition."""
    for name, ids in prompts():
        path, gaps = greedy(model, ids)
        if min(gaps) < GAP or (len(ids) > 1 and len(set(path)) < DISTINCT):
            return False
    return True


@torch.no_grad()
def greedy_cached(model, ids):
    y, out = fresh(model)(torch.tensor([ids]), use_cache=True), []
    for _ in range(GREEDY):
        out.append(int(y.logits[0, -1].argmax()))
        y = model(torch.tensor([out[-1:]]), cache=y.past_key_values, use_cache=True)
    return out


def golden(model, note, cached=False):
    record = dict(note=note, transformers=transformers.__version__, torch=torch.__version__.split("+")[0], dtype="float32",
                  attention="eager", device="cpu", prompts=[])
    for name, ids in prompts():
        y = logits(model, ids)
        assert torch.isfinite(y).all()
        top = y.topk(10, -1)
        path, gaps = greedy(model, ids)
        p = dict(name=name, ids=ids,
                 top10=[[[i, round(v, 5)] for i, v in zip(*row)] for row in zip(top.indices.tolist(), top.values.tolist())],
                 logsumexp=[round(float(v), 5) for v in y.logsumexp(-1)], greedy=path, greedy_gaps=gaps)
        if cached:
            p["greedy_cached"] = greedy_cached(model, ids)
        record["prompts"].append(p)
    return record


def write_golden(path, record):
    """JSON with one line a position."""
    short = lambda x: json.dumps(x, separators=(",", ":"))
    lines = ["{"]
    lines += [f' "{k}": {json.dumps(v)},' for k, v in record.items() if k != "prompts"]
    lines.append(' "prompts": [')
    for i, p in enumerate(record["prompts"]):
        rows = [f'  "{k}": {short(v)}' for k, v in p.items() if k != "top10"]
        rows.append('  "top10": [\n' + ",\n".join("   " + short(r) for r in p["top10"]) + "]")
        lines.append("  {\n" + ",\n".join(rows) + "}" + ("," if i + 1 < len(record["prompts"]) else ""))
    text = "\n".join(lines + [" ]", "}"]) + "\n"
    assert json.loads(text) == json.loads(json.dumps(record))
    path.write_text(text)


def check_blind(name, folder, weights, right):
    """Fails unless each careless reading of the config would be seen."""
    ids = prompts()[-1][1]
    for changes in MODELS[name][2].get("blind", []):
        with tempfile.TemporaryDirectory() as tmp:
            config_for(name, changes).save_pretrained(tmp)
            save_file(weights, f"{tmp}/model.safetensors", metadata={"format": "pt"})
            wrong = logits(load(tmp), ids)
        moved = float((wrong - right).abs().max())
        print(f"  {changes}: moves logits by {moved:.2f}")
        if moved < VISIBLE:
            sys.exit(f"{name}: {changes} is not visible")


def build(name, folder, seed):
    """Writes one model directory with a seed; returns the running model and its float weights, or None if the greedy path is poor."""
    _, _, options = MODELS[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dense = tensors(options.get("weights_of", name), seed)
    weights, quantization = dense, None
    if "bitnet" in options:
        weights, plain = ternary(dense, options["bitnet"])
        quantization = dict(BITNET, linear_class=options["bitnet"])
    if "mxfp4" in options:
        weights, plain = mxfp4(dense)
        dense = plain
        quantization = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                          "model.embed_tokens", "lm_head"])
    dtype = {"F16": "float16", "BF16": "bfloat16"}[options.get("stored", [("", "BF16")])[-1][1]]
    write_config(folder, config_for(name), options, dtype, quantization)
    write_weights(folder, weights, options.get("shards", 1))
    write_tokenizer(folder)
    model = load_dense(name, plain) if "mxfp4" in options else load(folder)
    if not telling(model):
        return None
    note = options.get("note", "")
    if "bitnet" in options:
        record = golden(model, "activations rounded to 8 bits per token, as transformers runs a BitNet model")
        write_golden(folder / "golden-8bit-activations.json", record)
        model = load_dense(name, plain)
        if not telling(model):
            return None
        note = "the same ternary weights as plain numbers, activations not rounded"
    write_golden(folder / "golden.json", golden(model, note, options.get("cached", False)))
    return model, dense


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", help="models to write (default: all)")
    ap.add_argument("--out", type=pathlib.Path, default=HERE / "models")
    a = ap.parse_args()
    torch.set_num_threads(1)  # one order of summation on every machine
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in a.names or MODELS:
        for seed in range(200):
            if built := build(name, a.out / name, seed):
                break
        else:
            sys.exit(f"{name}: no seed has a clear greedy path")
        for f in (a.out / name).iterdir():
            f.chmod(0o644)
        size = sum(f.stat().st_size for f in (a.out / name).iterdir())
        print(f"{name}: seed {seed}, {size / 1000:.0f} kB", flush=True)
        if "shards" not in MODELS[name][2]:
            model, dense = built
            check_blind(name, a.out / name, dense, logits(model, prompts()[-1][1]))


if __name__ == "__main__":
    main()
