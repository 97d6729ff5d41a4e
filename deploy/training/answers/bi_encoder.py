"""Trains the bi-encoder: moves the vector of a customer's turn near those of the sections, rows and sentences that
answer it.

One step takes turns of one company and all of its sections, with a softmax over the sections and one over all of their
sentences, so that the network learns to separate places of the same company.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .companies import Company, Section, Turn, answers, options, trained_and_held
from .network import Bert, Optimiser, Words, at_its_fastest, mean, padded, seconds
from .reviews import entities

LONGEST_TEXT, LONGEST_SECTION = 64, 160
# The weight of each turn before in a query.
BEFORE = 0.5


class Indexed:
    """A company's sections as tokens, with the places of their sentences."""

    def __init__(self, words: Words, company: Company):
        self.rows, self.spans, self.sentences = [], [], []
        for at, section in enumerate(company.sections):
            tokens = [words.cls, *words.of(section.title)]
            for number, sentence in enumerate(section.sentences):
                begin = len(tokens)
                tokens += words.of(sentence)
                if begin < LONGEST_SECTION - 1:
                    self.spans.append((at, begin, min(len(tokens), LONGEST_SECTION - 1)))
                    self.sentences.append((at, number))
            self.rows.append([*tokens[: LONGEST_SECTION - 1], words.sep])

    def vectors(self, network: Bert, most: int = 32) -> tuple[Tensor, Tensor]:
        """Returns the vectors of sections and of sentences; a sentence's is the mean of its tokens within the
        section."""
        order = sorted(range(len(self.rows)), key=lambda at: len(self.rows[at]))
        sections, states = [None] * len(order), [None] * len(order)
        for begin in range(0, len(order), most):
            chunk = order[begin : begin + most]
            tokens = padded([self.rows[at] for at in chunk])
            found = network(tokens)
            for at, vector, state in zip(chunk, mean(found, tokens), found):
                sections[at], states[at] = vector, state
        sentences = [states[at][begin:end].float().mean(0) for at, begin, end in self.spans]
        return torch.stack(sections), F.normalize(torch.stack(sentences), dim=-1)


def text_vectors(network: Bert, words: Words, texts: list[str], most: int = 64) -> Tensor:
    return of_texts(words, texts, lambda tokens: mean(network(tokens), tokens), most)


def of_texts(words: Words, texts: list[str], made_of: Callable[[Tensor], Tensor], most: int = 64) -> Tensor:
    """Returns a row for each text; `made_of` makes those of a few texts from their tokens."""
    rows = [[words.cls, *words.of(text)[-(LONGEST_TEXT - 2) :], words.sep] for text in texts]
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    made = [None] * len(rows)
    for begin in range(0, len(order), most):
        chunk = order[begin : begin + most]
        for at, row in zip(chunk, made_of(padded([rows[at] for at in chunk]))):
            made[at] = row
    return torch.stack(made)


def queries(network: Bert, words: Words, turns: list[Turn]) -> Tensor:
    """Returns the vector of each turn: its own plus half of those of the two turns before."""
    texts = list(dict.fromkeys(text for turn in turns for text in (turn.text, *turn.before)))
    vectors = text_vectors(network, words, texts)
    place = {text: at for at, text in enumerate(texts)}
    rows = []
    for turn in turns:
        row = vectors[place[turn.text]]
        for text in turn.before:
            row = row + BEFORE * vectors[place[text]]
        rows.append(row)
    return F.normalize(torch.stack(rows), dim=-1)


@torch.no_grad()
def measured(network: Bert, words: Words, held: list[Company]) -> dict:
    """Returns how often the right section is first, among three, five and ten, and how often the right sentence of the
    right section is first, for turns that sections answer and for those that rows answer."""
    found = {"document": [], "table": []}
    sentence = {"document": [], "table": []}
    for company in held:
        indexed = Indexed(words, company)
        sections, sentences = indexed.vectors(network)
        turns = [turn for turn in company.turns if turn.kind in found]
        asked = queries(network, words, turns)
        places = [section.place for section in company.sections]
        for turn, likeness, of_sentences in zip(turns, asked @ sections.T, asked @ sentences.T):
            order = [places[at] for at in likeness.argsort(descending=True)]
            found[turn.kind].append(min(order.index(place) for place in turn.gold))
            gold = company.sections[places.index(turn.gold[0])]
            scores = {n: score for (at, n), score in zip(indexed.sentences, of_sentences.tolist()) if company.sections[at] is gold}
            sentence[turn.kind].append(max(scores, key=scores.get) in answers(turn, gold))
    share = lambda values: round(sum(values) / max(1, len(values)), 3)
    return {
        kind: {**{f"@{k}": share([rank < k for rank in ranks]) for k in (1, 3, 5, 10)}, "sentence": share(sentence[kind])}
        for kind, ranks in found.items()
    }


def losses_of(network: Bert, words: Words, company: Company, indexed: Indexed, turns: list[Turn], scale: float) -> Tensor:
    """Returns the cross-entropy over the company's sections, plus half of that over its sentences."""
    sections, sentences = indexed.vectors(network)
    asked = queries(network, words, turns)
    places = {section.place: at for at, section in enumerate(company.sections)}
    numbers = {sentence: at for at, sentence in enumerate(indexed.sentences)}
    of_sections, of_sentences = torch.zeros(len(turns), len(sections)), torch.zeros(len(turns), len(sentences))
    for row, turn in enumerate(turns):
        for place in turn.gold:
            at = places[place]
            of_sections[row, at] = 1 / len(turn.gold)
            for number in answers(turn, company.sections[at]):
                if (at, number) in numbers:
                    of_sentences[row, numbers[at, number]] = 1
    of_sentences /= of_sentences.sum(1, keepdim=True).clamp(min=1)
    first = F.cross_entropy(scale * asked @ sections.T, of_sections)
    return first + 0.5 * F.cross_entropy(scale * asked @ sentences.T, of_sentences)


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train bi-encoder", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of a BERT in the layout of sentence-transformers")
    options(parser)
    parser.add_argument("--reviews", type=Path, help="DSTC11 track 5, whose hotels and restaurants are trained on as well")
    parser.add_argument("--out", type=Path, required=True, help="a folder that `models.embedder` can name")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--scale", type=float, default=20.0, help="what a cosine is multiplied by")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    words = Words(args.model)
    trained, held = trained_and_held(args)
    trained += entities(args.reviews) if args.reviews else []
    network = Bert.pretrained(args.model)
    print("before", measured(network.eval(), words, held), flush=True)

    indexed = {it.name: Indexed(words, it) for it in trained}
    # Turns without an answer have no place to learn.
    steps = []
    for _ in range(args.epochs):
        of_epoch = []
        for company in trained:
            turns = [turn for turn in company.turns if turn.gold]
            random.shuffle(turns)
            of_epoch += [(company, turns[at : at + args.batch]) for at in range(0, len(turns), args.batch)]
        random.shuffle(of_epoch)
        steps += of_epoch
    at_its_fastest(network)
    optimiser = Optimiser(list(network.parameters()), args.rate, len(steps))
    began, losses = time.time(), []
    for at, (company, turns) in enumerate(steps):
        loss = losses_of(network, words, company, indexed[company.name], turns, args.scale)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if (at + 1) % 20 == 0 or at + 1 == len(steps):
            print(f"{at + 1}/{len(steps)} loss {sum(losses[-20:]) / len(losses[-20:]):.3f} {seconds(time.time() - began)}", flush=True)
        if (at + 1) % (len(steps) // args.epochs) == 0:
            print("held out", measured(network, words, held), flush=True)
            network.save(args.out, args.model)


if __name__ == "__main__":
    main()
