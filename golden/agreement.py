#!/usr/bin/env python3
"""At how many of 512 positions of WikiText-2 the likeliest token is llama.cpp's.

    python3 golden/agreement.py MODEL.gguf wiki.test.raw [--nibble PATH] [options of `nibble logits`]

MODEL.gguf is one of the files that `cargo xtask fetch` brings; wiki.test.raw is the raw test set. The text's first 512
tokens are read with nothing in front, so position i answers tokens 0 to i.

agreement.json holds llama.cpp 0.6.0's answers on the CPU (AVX-512), keys and values in F32, flash attention off, as it
is (`eight_bit`: it rounds activations to eight bits) and with the model's weights widened to F32 first (`float`).
"""

import argparse
import hashlib
import json
import pathlib
import subprocess

COUNT = 512


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **more).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--nibble", default="nibble")
    arguments, options = parser.parse_known_args()
    answers = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
    expected = answers.get(arguments.model.name)
    if expected is None:
        parser.error(f"expected one of {', '.join(answers)}, found {arguments.model.name}")
    start = arguments.text.read_bytes()[: 64 * COUNT].decode("utf-8", "ignore").encode()
    tokens = run(arguments.nibble, "tokenize", arguments.model, "--plain", "--json", input=start)
    tokens = ",".join(map(str, json.loads(tokens)["tokens"][:COUNT]))
    if hashlib.sha256(tokens.encode()).hexdigest() != expected["tokens_sha256"]:
        parser.error(f"{arguments.text}: expected the raw test set of WikiText-2, found other tokens")
    found = run(arguments.nibble, "logits", arguments.model, "--tokens", tokens, "--json", "--top", "2", *options)
    found = json.loads(found)["top"]
    for name in ("float", "eight_bit"):
        gaps = [top[0][1] - top[1][1] for top, token in zip(found, expected[name]) if top[0][0] != token]
        widest = f"; elsewhere its lead is at most {max(gaps):.2f} logits" if gaps else ""
        print(f"{name}: {COUNT - len(gaps)} of {COUNT} ({100 * (1 - len(gaps) / COUNT):.1f} %){widest}")


if __name__ == "__main__":
    main()
