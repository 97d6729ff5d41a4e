#!/usr/bin/env python3
"""Measures llama.cpp on the decoder of `cargo bench --bench decoder`.

    PYTHONPATH=$(deploy/language-model/fetch | tail -n 1) python3 benches/decoder/llama_cpp.py

Writes a Llama of the bench's shape with random weights in Q8_0 (`--write` does no more than that),
serves it with llama.cpp's server on loopback, and prints the server's own figures: tokens per second
of prompts (prefill) and of answers (decode), for 1 and 8 conversations at once, as the median of
rounds. Divide the bench's figures by these for the ratios; take both in turn on a machine with
nothing else to do. The server's log, which is long, is on standard error.
"""

import argparse
import array
import json
import random
import statistics
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "language-model"))
import tiny_model as gguf  # noqa: E402

WIDTH, LAYERS, HEADS, KEY_HEADS, WIDE, TOKENS = 512, 8, 8, 4, 1536, 16384
PROMPT, ANSWER = 512, 64
Q8_0, BLOCK = 8, 32


def metadata():
    number = lambda key, value: gguf.entry(key, gguf.UINT32, value)  # noqa: E731
    plain = gguf.byte_letters()
    words = [*plain, "ab", *(f"token{at}" for at in range(len(plain) + 1, TOKENS))]
    return [
        gguf.entry("general.architecture", gguf.STRING, "llama"),
        number("llama.context_length", 8192),
        number("llama.embedding_length", WIDTH),
        number("llama.block_count", LAYERS),
        number("llama.feed_forward_length", WIDE),
        number("llama.attention.head_count", HEADS),
        number("llama.attention.head_count_kv", KEY_HEADS),
        gguf.entry("llama.attention.layer_norm_rms_epsilon", gguf.FLOAT32, 1e-5),
        number("llama.rope.dimension_count", WIDTH // HEADS),
        number("llama.vocab_size", TOKENS),
        gguf.entry("tokenizer.ggml.model", gguf.STRING, "gpt2"),
        gguf.entry("tokenizer.ggml.pre", gguf.STRING, "gpt-2"),
        gguf.entries("tokenizer.ggml.tokens", gguf.STRING, words),
        gguf.entries("tokenizer.ggml.token_type", gguf.INT32, [1] * TOKENS),
        gguf.entries("tokenizer.ggml.merges", gguf.STRING, ["a b"]),
        number("tokenizer.ggml.eos_token_id", TOKENS - 1),
        gguf.entry("tokenizer.ggml.add_bos_token", gguf.BOOL, False),
    ]


def shapes():
    keys = WIDTH // HEADS * KEY_HEADS
    yield "token_embd.weight", (WIDTH, TOKENS)
    yield "output_norm.weight", (WIDTH,)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (WIDTH,)
        yield block + "ffn_norm.weight", (WIDTH,)
        for name, outputs in (("q", WIDTH), ("k", keys), ("v", keys), ("output", WIDTH)):
            yield f"{block}attn_{name}.weight", (WIDTH, outputs)
        for name in ("gate", "up"):
            yield f"{block}ffn_{name}.weight", (WIDTH, WIDE)
        yield block + "ffn_down.weight", (WIDE, WIDTH)


def weights(shape, numbers):
    """The kind and the bytes of a tensor: norms in f32, the others in blocks of Q8_0."""
    if len(shape) == 1:
        return gguf.F32_TENSOR, array.array("f", [1.0] * shape[0]).tobytes()
    blocks = shape[0] * shape[1] // BLOCK
    scale = struct.pack("<e", (3.0 / WIDTH) ** 0.5 / 127)
    return Q8_0, b"".join(scale + numbers.randbytes(BLOCK) for _ in range(blocks))


def write(path):
    said, numbers, infos, data = metadata(), random.Random(33), [], bytearray()
    tensors = list(shapes())
    for name, shape in tensors:
        kind, content = weights(shape, numbers)
        head = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        infos.append(gguf.text(name) + head)
        data += content + bytes(-len(content) % gguf.ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(said)) + b"".join(said + infos)
    path.write_bytes(head + bytes(-len(head) % gguf.ALIGNMENT) + data)


def ask(address, seed, answer):
    """One conversation's prompt and answer; seconds that it took."""
    numbers = random.Random(seed)
    prompt = [numbers.randrange(33, 200) for _ in range(PROMPT)]
    asked = {"prompt": prompt, "n_predict": answer, "temperature": 0, "ignore_eos": True,
             "cache_prompt": False}
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def all_at_once(address, conversations, answer, turn):
    begun = time.perf_counter()
    threads = [
        threading.Thread(target=ask, args=(address, turn * 100 + at, answer))
        for at in range(conversations)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the model there, and end")
    given = parser.parse_args()
    if given.write:
        write(given.write)
        return
    import xllamacpp

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.gguf")
        write(path)
        said = xllamacpp.CommonParams()
        said.model.path = str(path)
        said.hostnames, said.port = ["127.0.0.1"], 0
        said.n_ctx, said.n_parallel = 8192, 8
        said.cpuparams.n_threads = said.cpuparams_batch.n_threads = given.threads
        server = xllamacpp.Server(said)
        address = server.listening_address
        print(f"xllamacpp {xllamacpp.__version__}, {given.threads} threads, Q8_0")
        all_at_once(address, 1, 1, 999)
        for conversations in (1, 8):
            first = [all_at_once(address, conversations, 1, turn) for turn in range(given.rounds)]
            whole = [
                all_at_once(address, conversations, 1 + ANSWER, turn + 50)
                for turn in range(given.rounds)
            ]
            first, whole = statistics.median(first), statistics.median(whole)
            prefill = conversations * PROMPT / first
            decode = conversations * ANSWER / (whole - first)
            print(f"{conversations} at once: prefill {prefill:.0f}/s, decode {decode:.0f}/s", flush=True)


main()
