# Measures one row with OpenVINO GenAI and prints one JSON object.
# Arguments: model, task, tokens, depth, sequences, whether to warm up, threads.
import json
import random
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai

path, task = sys.argv[1:3]
tokens, depth, sequences, warmup, threads = map(int, sys.argv[3:8])
pipeline = genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
draws = random.Random(1)


def generate(length, count):
    """Measures of `count` tokens after prompts of `length` random ids below 256, which every vocabulary has."""
    ids = np.array([[draws.randrange(256) for _ in range(length)] for _ in range(sequences)], dtype=np.int64)
    inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
    settings = genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False, apply_chat_template=False)
    return pipeline.generate(inputs, settings).perf_metrics


if warmup:
    generate(8, 2)
if task == "prefill":
    rate = sequences * tokens / generate(tokens, 1).get_ttft().mean * 1000
else:
    measured = generate(depth + 1, tokens + 1)
    rate = sequences * tokens / (measured.get_generate_duration().mean - measured.get_ttft().mean) * 1000
print(json.dumps({"tokens_per_s": rate, "version": f"OpenVINO GenAI {genai.__version__}"}))
