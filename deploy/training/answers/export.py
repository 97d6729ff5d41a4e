"""Writes a trained reader in the form that the engine reads: rounded to numbers of 8 bits at most, with its tokenizer,
compressed. Fits the linear layer that recognises the purpose of an utterance (a question, small talk, a hand-off ...) on
what the network's lower and upper layers make of it."""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
import zstandard
from safetensors.torch import load_file, save
from torch import Tensor

from .bi_encoder import intent_vectors
from .companies import INTENTS, Company, options, trained_and_held
from .network import Bert, Words, in_three, layer_names, names
from .reader import Reader
from .rounding import LEVELS, round_weights, steps


def labelled(network: Bert, words: Words, own: int, of: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Returns what intents are told by for each text, and the places of their intents."""
    vectors = intent_vectors(network, words, [text for text, _ in of], own)
    return vectors, torch.tensor([INTENTS.index(intent) for _, intent in of])


def turns(of: list[Company]) -> list[tuple[str, str]]:
    return [(turn.text, turn.intent) for company in of for turn in company.turns]


def utterances(path: Path) -> list[tuple[str, str]]:
    """Reads utterances that belong to no company: a text and its kind a line."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(line["text"], line["kind"]) for line in lines]


def intents(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Fits a linear layer over vectors by regularised logistic regression. Rare intents have a larger weight, since a
    missed hand-off is worse than one too many."""
    weight = torch.zeros(len(INTENTS), vectors.shape[1], requires_grad=True)
    bias = torch.zeros(len(INTENTS), requires_grad=True)
    share = len(labels) / (len(INTENTS) * torch.bincount(labels, minlength=len(INTENTS)).float())
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=300)

    def step():
        optimiser.zero_grad()
        loss = F.cross_entropy(vectors @ weight.T + bias, labels, weight=share.sqrt()) + 1e-5 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(step)
    return weight.detach(), bias.detach()


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


def write(
    out: Path, card: dict, bert: Bert, reader: Reader, rounded: dict[str, Tensor], intents: tuple[Tensor, Tensor]
):
    """Writes a reader whose weights are rounded; `rounded` has their steps by the names in training."""
    tensors = by_file(bert, reader, bert.state_dict() | reader.state_dict())
    tensors |= dict(zip(("intents.weight", "intents.bias"), intents))
    made = at_eight_bits(tensors, by_file(bert, reader, rounded))
    # Numbers of a byte hardly repeat: short repetitions would cost more than the codes of the bytes.
    compression = zstandard.ZstdCompressionParameters.from_level(19, min_match=7)
    made = zstandard.ZstdCompressor(compression_params=compression).compress(save(made, {"turnstream": json.dumps(card)}))
    out.write_bytes(made)
    print(f"{out}: {len(made):,} bytes")


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train export-reader", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the folder of the bi-encoder")
    parser.add_argument("--reader", type=Path, required=True, help="the file that the reader was trained into")
    options(parser)
    parser.add_argument("--utterances", type=Path, help="more utterances for the layer of intents, such as utterances/en.jsonl")
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
    vectors, labels = labelled(network, words, own, turns(trained) + more)
    weight, bias = intents(vectors, labels)
    # Other utterances show what an intent sounds like; how often it comes is what turns of companies show.
    share = lambda of: torch.bincount(of, minlength=len(INTENTS)).float() / len(of)
    bias -= share(labels).log() - share(labels[: len(labels) - len(more)]).log()
    if held:
        vectors, labels = labelled(network, words, own, turns(held))
        found = (vectors @ weight.T + bias).argmax(1)
        for at, name in enumerate(INTENTS):
            print(name, "of", int((labels == at).sum()), "found", int(((labels == at) & (found == at)).sum()), end=", ")
            print("wrongly", int(((labels != at) & (found == at)).sum()))
    card = {
        "shape": json.loads((args.model / "config.json").read_text()),
        "tokenizer": json.loads((args.model / "tokenizer.json").read_text()),
    }
    write(args.out, card, network, reader, rounded, (weight, bias))


if __name__ == "__main__":
    main()
