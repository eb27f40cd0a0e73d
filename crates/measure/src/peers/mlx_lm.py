# Measures one row with mlx-lm and prints one JSON object.
# Arguments: model directory, task, tokens, depth, sequences (1), whether to warm up, threads (not used).
import json
import random
import sys
import time

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generate_step

path, task = sys.argv[1:3]
tokens, depth, _, warmup, _ = map(int, sys.argv[3:8])
model, tokenizer = mlx_lm.load(path)
draws = random.Random(1)


def ids(count):
    return mx.array([draws.randrange(tokenizer.vocab_size) for _ in range(count)])


def arrivals(prompt, count):
    """Seconds from the start at which each of `count` tokens was there."""
    start = time.perf_counter()
    return [time.perf_counter() - start for _ in generate_step(prompt, model, max_tokens=count)]


if warmup:
    arrivals(ids(8), 2)
if task == "prefill":
    rate = tokens / arrivals(ids(tokens), 1)[0]
else:
    times = arrivals(ids(depth + 1), tokens + 1)
    rate = tokens / (times[-1] - times[0])
print(json.dumps({"tokens_per_s": rate, "version": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}"}))
