"""The perplexity of a text by Hugging Face transformers, over chunks as llama.cpp's `llama-perplexity` makes them.

Writes `perplexity.json`: for each model of `models/` named below its tokens, and for a context and a number of chunks the
mean negative log-likelihood, the perplexity and its standard error. Chunks follow each other without overlap, each starts
from nothing, and positions from half the context on foresee the next token. Float32, eager attention, CPU, one thread;
sums in Python's own floats.
"""

import json
import math
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = ["llama", "qwen3.5", "gemma2"]
CONTEXT = 48
TEXT = (
    "The keeper of the small observatory wrote down the weather twice a day, at seven and at seven, in a hand that grew "
    "larger with the years. When the last notebook was full he turned it over and wrote between the old lines, so that "
    "every summer had a winter underneath it."
)


def scores(model, tokens):
    """The negative log-likelihood of each scored token."""
    for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT):
        chunk = tokens[start : start + CONTEXT]
        with torch.no_grad():
            logits = model(torch.tensor([chunk]), use_cache=False).logits[0].double()
        for position in range(CONTEXT // 2, CONTEXT - 1):
            row = logits[position].tolist()
            most = max(row)
            total = most + math.log(math.fsum(math.exp(x - most) for x in row))
            yield total - row[chunk[position + 1]]


def measure(name):
    path = HERE / "models" / name
    tokens = transformers.AutoTokenizer.from_pretrained(path)(TEXT)["input_ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    found = list(scores(model.eval(), tokens))
    mean = math.fsum(found) / len(found)
    variance = math.fsum((x - mean) ** 2 for x in found) / len(found)
    error = math.exp(mean) * math.sqrt(variance / (len(found) - 1))
    return {"model": name, "tokens": tokens, "scored": len(found), "nll": mean, "perplexity": math.exp(mean), "error": error}


torch.set_num_threads(1)
result = {
    "transformers": transformers.__version__,
    "torch": torch.__version__,
    "context": CONTEXT,
    "text": TEXT,
    "models": [measure(name) for name in MODELS],
}
(HERE / "perplexity.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
