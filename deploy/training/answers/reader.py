"""Trains the reader on top of the bi-encoder: a turn and a section together; which sentence or cell of it answers, and
whether any does. It shares the bi-encoder's words and lower layers, which stay as they are, and has upper layers of its own.

One pass over (turn | title, sentence, sentence, ...): the mean of a sentence's tokens scores it. A turn chooses among the
sentences of its candidates and nothing, whose score is 0.
"""

import argparse
import copy
import random
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from .bi_encoder import Indexed, queries
from .companies import Company, Section, Turn, answers, options, trained_and_held
from .network import Bert, Optimiser, Words, padded, seconds

LONGEST_TURN, LONGEST = 64, 192


class Reader(nn.Module):
    def __init__(self, bert: Bert, own: int):
        super().__init__()
        # Not a module of this one: it is not trained.
        self.shared = [bert]
        self.upper = copy.deepcopy(bert.layers[len(bert.layers) - own :])
        self.score = nn.Linear(bert.words.weight.shape[1], 1)

    def forward(self, tokens: Tensor, kinds: Tensor, spans: list[tuple[int, int, int]]) -> Tensor:
        """The score of each sentence; `spans` are (row, begin, end)."""
        bert = self.shared[0]
        with torch.no_grad():
            x, mask = bert.embedded(tokens, kinds)
            x = bert.through(x, mask, bert.layers[: len(bert.layers) - len(self.upper)])
        states = bert.through(x, mask, self.upper)
        return self.score(torch.stack([states[row, begin:end].mean(0) for row, begin, end in spans])).squeeze(-1)


def turn_tokens(words: Words, turn: Turn) -> list[int]:
    """The utterance, and behind it what was said before, latest first, as much as there is room for."""
    said = words.of(turn.text)[: LONGEST_TURN - 3]
    before = []
    for it in reversed(turn.history[-2:]):
        before += [words.sep, *words.of(it["text"])]
    return [words.cls, *said, *before[: LONGEST_TURN - 2 - len(said)], words.sep]


class Pairs:
    """Pairs of turns and sections as rows, with the places of their sentences."""

    def __init__(self, words: Words):
        self.words = words
        self.known: dict[int, list[list[int]]] = {}

    def parts(self, section: Section) -> list[list[int]]:
        if id(section) not in self.known:
            parts = [self.words.of(section.title), *(self.words.of(it) for it in section.sentences)]
            self.known[id(section)] = parts
        return self.known[id(section)]

    def row(self, turn: list[int], section: Section) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Tokens, their kinds, and where each sentence begins and ends; what there is no room for cannot be chosen."""
        title, *sentences = self.parts(section)
        tokens = [*turn, *title]
        spans = []
        for sentence in sentences:
            begin = len(tokens)
            tokens = [*tokens, *sentence][: LONGEST - 1]
            if begin < len(tokens):
                spans.append((begin, len(tokens)))
        tokens.append(self.words.sep)
        return tokens, [0] * len(turn) + [1] * (len(tokens) - len(turn)), spans


@torch.no_grad()
def candidates(network: Bert, words: Words, company: Company, most: int) -> dict[str, list[int]]:
    """The nearest sections of each turn, by the bi-encoder."""
    sections, _ = Indexed(words, company).vectors(network)
    near = (queries(network, words, company.turns) @ sections.T).topk(min(most, len(company.sections)))
    return {turn.id: row for turn, row in zip(company.turns, near.indices.tolist())}


def run(reader: Reader, rows) -> list[Tensor]:
    """The scores of each row's sentences."""
    tokens = padded([row[0] for row in rows])
    kinds = padded([row[1] for row in rows])
    spans = [(at, *span) for at, row in enumerate(rows) for span in row[2]]
    return list(reader(tokens, kinds, spans).float().split([len(row[2]) for row in rows]))


@torch.no_grad()
def measured(reader: Reader, pairs: Pairs, held: list[Company], near: dict[str, dict], most: int) -> dict:
    right, sentence, total, false, negatives, curve = 0, 0, 0, 0, 0, []
    for company in held:
        for turn in company.turns:
            if turn.kind not in ("document", "table", "unanswerable", "out_of_domain"):
                continue
            chosen = [company.sections[at] for at in near[company.name][turn.id][:most]]
            said = turn_tokens(pairs.words, turn)
            found = [row.tolist() for row in run(reader, [pairs.row(said, section) for section in chosen])]
            best, place, at = max((max(row), place, row.index(max(row))) for place, row in enumerate(found))
            is_right = at in answers(turn, chosen[place])
            curve.append((best, is_right, bool(turn.gold)))
            if turn.gold:
                total += 1
                right += chosen[place].place in turn.gold
                sentence += is_right
            else:
                negatives += 1
                false += best > 0
    curve.sort(reverse=True)
    best_recall, said, hit, wrong = {}, 0, 0, 0
    for score, is_right, is_answerable in curve:
        said += 1
        hit += is_right
        wrong += not is_answerable
        for level in (0.65, 0.75, 0.85):
            if hit / said >= level:
                best_recall[level] = (round(hit / total, 3), round(wrong / max(1, negatives), 3))
    return {
        "section": round(right / total, 3), "sentence": round(sentence / total, 3), "of": total,
        "false at 0": round(false / max(1, negatives), 3), "recall and false answers at precision": best_recall,
    }


def reading_loss(reader: Reader, pairs: Pairs, batch: list[tuple[Company, Turn]], near, most: int, missed: float) -> Tensor:
    """The cross-entropy over the sentences of each turn's candidates, and none. What answers may be missed, as it will be
    by retrieval: then none is right."""
    rows, groups = [], []
    for company, turn in batch:
        chosen = negatives_and_gold(company, turn, near, most)
        if random.random() < missed:
            chosen = [section for section in chosen if section.place not in turn.gold]
        said = turn_tokens(pairs.words, turn)
        groups.append((turn, chosen, len(rows)))
        rows += [pairs.row(said, section) for section in chosen]
    scores = run(reader, rows)
    loss = torch.zeros(())
    for turn, chosen, begin in groups:
        logits = torch.cat([*scores[begin : begin + len(chosen)], torch.zeros(1)])
        right, before = [], 0
        for row, section in zip(scores[begin:], chosen):
            right += [before + at for at in answers(turn, section) if at < len(row)]
            before += len(row)
        loss = loss + torch.logsumexp(logits, 0) - torch.logsumexp(logits[right or [len(logits) - 1]], 0)
    return loss / len(batch)


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train reader", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of a trained bi-encoder")
    options(parser)
    parser.add_argument("--out", type=Path, required=True, help="the file of its layers and score")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--groups", type=int, default=8, help="turns in a step")
    parser.add_argument("--candidates", type=int, default=4, help="sections that a turn is read with in training")
    parser.add_argument("--missed", type=float, default=0.2, help="share of turns that are read without what answers them")
    parser.add_argument("--layers", type=int, default=5, help="upper layers of its own")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    words = Words(args.model)
    trained, held = trained_and_held(args)
    bert = Bert.pretrained(args.model).eval()
    near = {it.name: candidates(bert, words, it, 16) for it in trained + held}
    reader = Reader(bert.bfloat16(), args.layers)
    nn.init.zeros_(reader.score.bias)
    pairs = Pairs(words)
    turns = [(it, turn) for it in trained for turn in it.turns]
    steps = [batch for _ in range(args.epochs) for batch in chunked(turns, args.groups)]
    reader.bfloat16()
    optimiser = Optimiser(list(reader.parameters()), args.rate, len(steps))
    began, losses = time.time(), []
    for at, batch in enumerate(steps):
        loss = reading_loss(reader, pairs, batch, near, args.candidates, args.missed)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if (at + 1) % 50 == 0 or at + 1 == len(steps):
            print(f"{at + 1}/{len(steps)} loss {sum(losses[-50:]) / len(losses[-50:]):.3f} {seconds(time.time() - began)}", flush=True)
        if (at + 1) % (len(steps) // args.epochs) == 0:
            print("held out, of 4", measured(reader, pairs, held, near, 4), flush=True)
            save_file({name: value.float() for name, value in reader.state_dict().items()}, args.out)


def chunked(turns: list, size: int) -> list[list]:
    order = random.sample(turns, len(turns))
    return [order[at : at + size] for at in range(0, len(order), size)]


def negatives_and_gold(company: Company, turn: Turn, near, most: int) -> list[Section]:
    """The places that answer, and others: what the bi-encoder confuses, now and then by chance."""
    places = {section.place: n for n, section in enumerate(company.sections)}
    chosen = [places[place] for place in turn.gold]
    pool = [at for at in near[company.name][turn.id] if at not in chosen]
    # The nearer, the more often.
    pool = [at for _, at in sorted((random.random() * (4 + rank), at) for rank, at in enumerate(pool))]
    while len(chosen) < most:
        at = pool.pop(0) if pool and random.random() < 0.9 else random.randrange(len(company.sections))
        if at not in chosen:
            chosen.append(at)
    random.shuffle(chosen)
    return [company.sections[at] for at in chosen]


if __name__ == "__main__":
    main()
