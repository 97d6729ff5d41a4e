"""Writes a language model of random weights as a GGUF file: a Llama of two layers over bytes.

Its text makes no sense, but it answers requests like any other model, which is enough for tests.
"""

import argparse
import array
import random
import struct

WIDTH, LAYERS, HEADS, FORWARD, CONTEXT = 64, 2, 4, 128, 4096
ALIGNMENT = 32
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
F32_TENSOR = 0
CHAT = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_letters():
    """Returns the letter for each byte in a byte-level vocabulary, as GPT-2 defined them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    packed = {UINT32: "<I", FLOAT32: "<f", BOOL: "<?"}
    body = text(value) if kind == STRING else struct.pack(packed[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def entries(key, kind, values):
    items = (text(value) if kind == STRING else struct.pack("<i", value) for value in values)
    head = struct.pack("<IIQ", ARRAY, kind, len(values))
    return text(key) + head + b"".join(items)


def metadata(merged):
    plain = [*byte_letters(), *merged]
    vocabulary = [*plain, "<|begin|>", "<|end|>"]
    normal, control = 1, 3
    kinds = [normal] * len(plain) + [control] * 2
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "random"),
        entry("llama.context_length", UINT32, CONTEXT),
        entry("llama.embedding_length", UINT32, WIDTH),
        entry("llama.block_count", UINT32, LAYERS),
        entry("llama.feed_forward_length", UINT32, FORWARD),
        entry("llama.attention.head_count", UINT32, HEADS),
        entry("llama.attention.head_count_kv", UINT32, HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        entry("llama.rope.dimension_count", UINT32, WIDTH // HEADS),
        entry("llama.vocab_size", UINT32, len(vocabulary)),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        entries("tokenizer.ggml.tokens", STRING, vocabulary),
        entries("tokenizer.ggml.token_type", INT32, kinds),
        entries("tokenizer.ggml.merges", STRING, ["a b"]),
        entry("tokenizer.ggml.bos_token_id", UINT32, len(plain)),
        entry("tokenizer.ggml.eos_token_id", UINT32, len(plain) + 1),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
        entry("tokenizer.chat_template", STRING, CHAT),
    ], len(vocabulary)


def shapes(words):
    yield "token_embd.weight", (WIDTH, words)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (WIDTH, words)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (WIDTH,)
        yield block + "ffn_norm.weight", (WIDTH,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{block}{name}.weight", (WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            yield f"{block}{name}.weight", (WIDTH, FORWARD)
        yield block + "ffn_down.weight", (FORWARD, WIDTH)


def weights(name, shape, numbers):
    if len(shape) == 1:
        return array.array("f", [1.0] * shape[0])
    # A wide output makes some letters much more likely than others, as in a trained model.
    spread = 1.0 if name == "output.weight" else shape[0] ** -0.5
    return array.array("f", (numbers.gauss(0, spread) for _ in range(shape[0] * shape[1])))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="where to write it")
    parser.add_argument("--seed", type=int, default=7, help="of the weights (default 7)")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="with the token that its one merge makes, which llama.cpp does not ask for",
    )
    given = parser.parse_args()
    said, words = metadata(["ab"] if given.whole else [])
    tensors = list(shapes(words))
    numbers = random.Random(given.seed)
    infos, data = [], bytearray()
    for name, shape in tensors:
        infos.append(
            text(name)
            + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, F32_TENSOR, len(data))
        )
        data += weights(name, shape, numbers).tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(said)) + b"".join(said + infos)
    with open(given.file, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    main()
