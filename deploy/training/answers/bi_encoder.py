"""Trains the bi-encoder: the vector of a customer's turn near those of the sections and rows that answer it.

One step takes turns of one company and all of its sections: a softmax over them, so that what the company itself
confuses is what is learned from.
"""

import argparse
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from .companies import Company, options, trained_and_held
from .network import Bert, Optimiser, Words, mean, padded, seconds

LONGEST_QUERY, LONGEST_SECTION = 64, 128


def query_tokens(words: Words, text: str) -> list[int]:
    # The end of a query is what was said last.
    return [words.cls, *words.of(text)[-(LONGEST_QUERY - 2) :], words.sep]


def section_tokens(words: Words, section) -> list[int]:
    return [words.cls, *words.of(section.text)[: LONGEST_SECTION - 2], words.sep]


def vectors(network: Bert, rows: list[list[int]], most: int = 64) -> torch.Tensor:
    """The vector of each row; rows of like length are computed together."""
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    made = [None] * len(rows)
    for begin in range(0, len(order), most):
        chunk = order[begin : begin + most]
        tokens = padded([rows[at] for at in chunk])
        for at, vector in zip(chunk, mean(network(tokens), tokens)):
            made[at] = vector
    return torch.stack(made)


@torch.no_grad()
def measured(network: Bert, words: Words, held: list[Company]) -> dict:
    """Right section first, among three, five, ten; of turns that sections answer, and of those that rows do."""
    found = {"document": [], "table": []}
    for company in held:
        sections = vectors(network, [section_tokens(words, it) for it in company.sections])
        turns = [turn for turn in company.turns if turn.kind in found]
        queries = vectors(network, [query_tokens(words, turn.query) for turn in turns])
        places = [section.place for section in company.sections]
        for turn, likeness in zip(turns, queries @ sections.T):
            order = [places[at] for at in likeness.argsort(descending=True)]
            found[turn.kind].append(min(order.index(place) for place in turn.gold))
    return {
        kind: {f"@{k}": round(sum(rank < k for rank in ranks) / max(1, len(ranks)), 3) for k in (1, 3, 5, 10)}
        for kind, ranks in found.items()
    }


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train bi-encoder", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    options(parser)
    parser.add_argument("--out", type=Path, required=True, help="a folder that `models.embedder` can name")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--scale", type=float, default=20.0, help="what a cosine is multiplied by")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    words = Words(args.model)
    trained, held = trained_and_held(args)
    network = Bert.pretrained(args.model)
    print("before", measured(network.eval(), words, held), flush=True)

    tokens = {it.name: [section_tokens(words, section) for section in it.sections] for it in trained}
    # What is answered has its places; what is not is nothing to learn a place from.
    steps = []
    for _ in range(args.epochs):
        of_epoch = []
        for company in trained:
            turns = [turn for turn in company.turns if turn.gold]
            random.shuffle(turns)
            of_epoch += [(company, turns[at : at + args.batch]) for at in range(0, len(turns), args.batch)]
        random.shuffle(of_epoch)
        steps += of_epoch
    network.bfloat16()
    optimiser = Optimiser(list(network.parameters()), args.rate, len(steps))
    began, losses = time.time(), []
    for at, (company, turns) in enumerate(steps):
        sections = vectors(network, tokens[company.name])
        queries = vectors(network, [query_tokens(words, turn.query) for turn in turns])
        places = {section.place: n for n, section in enumerate(company.sections)}
        target = torch.zeros(len(turns), len(places))
        for row, turn in enumerate(turns):
            for place in turn.gold:
                target[row, places[place]] = 1 / len(turn.gold)
        loss = F.cross_entropy(args.scale * queries @ sections.T, target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if (at + 1) % 40 == 0 or at + 1 == len(steps):
            print(f"{at + 1}/{len(steps)} loss {sum(losses[-40:]) / len(losses[-40:]):.3f} {seconds(time.time() - began)}", flush=True)
        if (at + 1) % (len(steps) // args.epochs) == 0:
            print("held out", measured(network, words, held), flush=True)
    network.save(args.out, args.model)


if __name__ == "__main__":
    main()
