"""Logits of given tokens by Hugging Face transformers in float32, for `nibble parity --against transformers`.

Arguments: a model directory or a GGUF file. Each line of stdin is a JSON list of tokens. For each, and once at the start,
stdout gets a line of JSON; `shape` in it announces that many float32 numbers, little-endian, right behind the line.
"""

import json
import os
import sys

# What libraries print must not get between the numbers.
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def say(head, numbers=b""):
    out.write(json.dumps(head).encode() + b"\n" + numbers)
    out.flush()


def load(path):
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    options = {"dtype" if version >= (4, 56) else "torch_dtype": torch.float32}
    if os.path.isfile(path):
        path, options["gguf_file"] = os.path.split(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", **options)
    return model.float().eval()


model = load(sys.argv[1])
say({"versions": {"transformers": transformers.__version__, "torch": torch.__version__}})
for line in sys.stdin:
    with torch.no_grad():
        logits = model(torch.tensor([json.loads(line)]), use_cache=False).logits[0].float().contiguous()
    say({"shape": list(logits.shape)}, logits.numpy().astype("<f4").tobytes())
