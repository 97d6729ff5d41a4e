"""Writes the figures that the engine's tests compare its own network and streams with: PyTorch's results for
a tiny model whose weights follow from their names, or for a trained one.

    python -m unified.reference > ../../src/models/unified/fixtures/figures.json
    python -m unified.reference --of OUT > ../../src/models/unified/fixtures/shipped.json
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .dialogue import DOCUMENTS, TABLE, Evidence, Turn
from .export import _LLAMA, trained
from .network import Network, Shape
from .stream import Renderer, Window
from .vocabulary import EVIDENCE_END, PLAN, RESPONSE, Vocabulary, special_tokens

_MERGES = ["t h", "i n", "e r", "a n", "o n", "th e", "Ġ the", "Ġ a", "in g", "l a", "m p", "la mp"]


def letters() -> list[str]:
    """Returns the letters for bytes, in the order of the bytes (GPT-2's)."""
    stands = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in stands else chr(next(others)) for byte in range(256)]


def tokenizer() -> dict:
    merged = [merge.replace(" ", "") for merge in _MERGES]
    tokens = [*special_tokens(), *letters(), *merged]
    added = [
        {"id": at, "content": token, "special": True, "normalized": False, "single_word": False,
         "lstrip": False, "rstrip": False}
        for at, token in enumerate(special_tokens())
    ]  # fmt: skip
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, by_bytes]},
        "post_processor": None, "decoder": by_bytes,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": {token: at for at, token in enumerate(tokens)},
                  "merges": _MERGES},
    }  # fmt: skip


def uniform(name: str, count: int) -> torch.Tensor:
    """Returns numbers from -1 to 1: splitmix64 from the FNV-1a hash of the name."""
    mask, seed = (1 << 64) - 1, 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 & mask
    numbers = []
    for at in range(1, count + 1):
        z = (seed + at * 0x9E3779B97F4A7C15) & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        numbers.append(((z ^ (z >> 31)) >> 40) / 8_388_608 - 1.0)
    return torch.tensor(numbers, dtype=torch.float32)


def fill(network: Network) -> dict[str, list[int]]:
    """Fills in the weights, and returns the shapes by Llama's names."""
    shapes = {}
    with torch.no_grad():
        for name, weight in network.named_parameters():
            parts = name.split(".")
            if parts[0] == "layers":
                llama = f"model.layers.{parts[1]}.{_LLAMA[parts[2]]}.weight"
            else:
                llama = {"embeddings": "model.embed_tokens.weight", "norm": "model.norm.weight"}[parts[0]]
            numbers = uniform(llama, weight.numel()).view(weight.shape)
            if weight.ndim == 1:
                weight.copy_(1.0 + 0.25 * numbers)
            elif "embed" in llama:
                weight.copy_(numbers)
            else:
                weight.copy_(numbers * (3.0 / weight.shape[1]) ** 0.5)
            shapes[llama] = list(weight.shape)
    return shapes


def laid_out(renderer: Renderer, said: list[Turn]) -> Window:
    """Lays out the last turn after the turns before it."""
    window = renderer.begin(said, len(said) - 1)
    renderer.turn(window, said[-1], 1, len(window))
    return window


def logits_of(network: Network, vocabulary: Vocabulary) -> dict[str, list]:
    """Returns the logits after the plan's beginning, after two pieces of evidence, and after the response's
    beginning."""
    renderer = Renderer(vocabulary, 384, 128)
    before = Turn("Do you have a lamp?", "Yes, the Oslo and 2 more.")
    asked = "What is the price of the Oslo lamp? [EOS]"
    lamp = Evidence(TABLE, "item = Oslo lamp, price = $49, stock = 3", 8)
    hotel = Evidence(DOCUMENTS, "Ashley Inn: Lamps in Ashley Inn are old.", 2)

    def logits(evidence: list[Evidence], behind: str) -> list[list[float]]:
        plan = tuple(dict.fromkeys(one.source for one in evidence))
        window = laid_out(renderer, [before, Turn(asked, "x", plan, evidence)])
        rows = [torch.tensor([of]) for of in (window.tokens, window.positions, window.turns, window.blocks)]
        with torch.no_grad():
            all_logits = network.logits(network(*rows))[0]
        control = vocabulary.control(behind)
        # The current turn is the last one with this token.
        turn = max(window.turns)
        places = [at for at, token in enumerate(window.tokens) if token == control and window.turns[at] == turn]
        return [[round(x, 5) for x in all_logits[at].tolist()] for at in places]

    return {
        "plan": logits([lamp], PLAN)[0],
        "relevance": [logits([lamp], EVIDENCE_END)[0], logits([hotel], EVIDENCE_END)[0]],
        "response": logits([lamp, hotel], RESPONSE)[0],
    }


def tiny() -> dict:
    described = tokenizer()
    vocabulary = Vocabulary(Tokenizer.from_str(json.dumps(described)))
    network = Network(Shape(len(vocabulary), width=64, layers=2, head=16)).float()
    shapes = fill(network)
    return {
        "tokenizer": described,
        "config": {
            "model_type": "llama", "hidden_act": "silu", "vocab_size": len(vocabulary), "hidden_size": 64,
            "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
            "max_position_embeddings": 1024, "tie_word_embeddings": True, "eos_token_id": 2,
        },
        "tensors": shapes,
        **logits_of(network, vocabulary),
    }  # fmt: skip


def of_trained(out: Path) -> dict:
    """Returns a trained model's logits of the control tokens (sources and relevance among them), and of every sixteenth
    other token."""
    network, vocabulary = trained(out)
    few = [*range(len(special_tokens())), *range(len(special_tokens()), len(vocabulary), 16)]
    figures = logits_of(network, vocabulary)
    pick = lambda logits: [logits[at] for at in few]
    relevance = [pick(logits) for logits in figures["relevance"]]
    return {"tokens": few, "plan": pick(figures["plan"]), "relevance": relevance, "response": pick(figures["response"])}


def main() -> None:
    parser = argparse.ArgumentParser(prog="unified.reference")
    parser.add_argument("--of", type=Path, help="the folder of a trained model")
    args = parser.parse_args()
    print(json.dumps(of_trained(args.of) if args.of else tiny()))


if __name__ == "__main__":
    main()
