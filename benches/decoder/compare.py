#!/usr/bin/env python3
"""Measures PyTorch transformers on the decoder of `cargo bench --bench decoder`.

    pip install torch transformers
    python benches/decoder/compare.py --threads 2

prints tokens per second of prompts (prefill) and of answers (decode) of a Llama of the same shape
with random weights, for 1 and 8 conversations at once, in f32 and bf16, as the median of rounds.
All prompts of a batch have the same length, so that nothing is padded. Divide the bench's figures
by these for the ratios; take both in turn on a machine with nothing else to do.
"""

import argparse
import statistics
import time

import torch
import transformers

PROMPT, ANSWER = 512, 64


def model(dtype):
    config = transformers.LlamaConfig(
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1536,
        vocab_size=16384,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    return made.eval()


def measure(network, conversations):
    """Seconds of the prompts, and of the answers."""
    prompt = torch.randint(0, 16384, (conversations, PROMPT))
    with torch.inference_mode():
        started = time.perf_counter()
        out = network(prompt, use_cache=True, logits_to_keep=1)
        first = time.perf_counter()
        cache = out.past_key_values
        for _ in range(ANSWER):
            token = out.logits[:, -1:].argmax(-1)
            out = network(token, past_key_values=cache, use_cache=True)
        return first - started, time.perf_counter() - first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, {arguments.threads} threads")
    for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16)]:
        network = model(dtype)
        for conversations in [1, 8]:
            measure(network, conversations)
            rounds = [measure(network, conversations) for _ in range(arguments.rounds)]
            prefill, decode = (statistics.median(times) for times in zip(*rounds))
            print(
                f"{name}, {conversations} at once, {PROMPT} tokens each: "
                f"prefill {conversations * PROMPT / prefill:.0f}/s, "
                f"decode {conversations * ANSWER / decode:.0f}/s"
            )


if __name__ == "__main__":
    main()
