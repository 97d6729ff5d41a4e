"""Writes a trained reader in the form that the engine reads: rounded to numbers of 8 bits at most, with its tokenizer,
compressed, with the layers that recognise the purpose of an utterance."""

import argparse
import json
from pathlib import Path

import torch
import zstandard
from safetensors.torch import load_file, save
from torch import Tensor

from .companies import INTENTS, options, trained_and_held
from .intents import Intents, fit, labels, told_by, turns, utterances
from .network import Bert, Words, in_three, layer_names, names
from .reader import Reader
from .rounding import LEVELS, STEP, round_weights, steps


def by_file(bert: Bert, reader: Reader, of: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors, which training names, by the names in the file; query, key and value are separate there."""
    named = names(len(bert.layers))
    for at in range(len(reader.upper)):
        named += layer_names(f"upper.{at}", f"reading.{at}")
    named += [(name, name) for name in ("score.weight", "score.bias", "roles.weight", "nearness")]
    made = {}
    for mine, theirs in named:
        if mine in of:
            made |= in_three(theirs, of[mine])
    return made


def at_eight_bits(tensors: dict[str, Tensor], rounded: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns matrices as rows of 8 bits with a scale each: the step of those that are `rounded`."""
    made = {}
    for name, value in tensors.items():
        value = value.float()
        if value.dim() == 2 and min(value.shape) > 8:
            step = rounded[name] if name in rounded else steps(value, 0.0)
            made[name] = (value / step).round().clamp(-LEVELS, LEVELS).to(torch.int8)
            made[f"{name}.scale"] = step[:, 0].contiguous()
        else:
            made[name] = value.contiguous()
    return made


def write(out: Path, card: dict, bert: Bert, reader: Reader, rounded: dict[str, Tensor], intents: Intents):
    """Writes a reader whose weights are rounded; `rounded` has their steps by the names in training."""
    tensors = by_file(bert, reader, bert.state_dict() | reader.state_dict())
    tensors |= {f"intents.{name}": value for name, value in intents.state_dict().items()}
    hidden = "intents.hidden.weight"
    made = at_eight_bits(tensors, by_file(bert, reader, rounded) | {hidden: steps(tensors[hidden], STEP)})
    # Numbers of a byte hardly repeat: short repetitions would cost more than the codes of the bytes.
    compression = zstandard.ZstdCompressionParameters.from_level(20, min_match=7)
    made = zstandard.ZstdCompressor(compression_params=compression).compress(save(made, {"turnstream": json.dumps(card)}))
    out.write_bytes(made)
    print(f"{out}: {len(made):,} bytes")


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train export-reader", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the folder of the bi-encoder")
    parser.add_argument("--reader", type=Path, required=True, help="the file that the reader was trained into")
    options(parser)
    parser.add_argument("--utterances", type=Path, help="more utterances for the layers of intents, such as utterances/en.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="the file, such as reader-en.safetensors.zst")
    args = parser.parse_args()
    words = Words(args.model)
    trained, held = trained_and_held(args)
    network = Bert.pretrained(args.model).eval()
    trained_layers = load_file(args.reader)
    own = 1 + max(int(name.split(".")[1]) for name in trained_layers if name.startswith("upper."))
    reader = Reader(network, own)
    reader.load_state_dict(trained_layers)
    rounded = round_weights(network, reader, words, trained)
    more = utterances(args.utterances) if args.utterances else []
    texts = turns(trained) + more
    intents = fit(told_by(network, words, [text for text, _ in texts], own), labels(texts), len(texts) - len(more), args.seed)
    if held:
        texts = turns(held)
        meant, found = labels(texts), intents(told_by(network, words, [text for text, _ in texts], own)).argmax(1)
        for at, name in enumerate(INTENTS):
            print(name, "of", int((meant == at).sum()), "found", int(((meant == at) & (found == at)).sum()), end=", ")
            print("wrongly", int(((meant != at) & (found == at)).sum()))
    card = {
        "shape": json.loads((args.model / "config.json").read_text()),
        "tokenizer": json.loads((args.model / "tokenizer.json").read_text()),
    }
    write(args.out, card, network, reader, rounded, intents)


if __name__ == "__main__":
    main()
