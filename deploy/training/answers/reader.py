"""Trains the reader: a turn and a section together; which sentence or cell of it answers, and whether any does.

One pass over (turn | title, marker sentence, marker sentence, ...): each marker scores its sentence. The best sentence
of a section is the section's score. A turn chooses among the sentences of its candidates and nothing, whose score is 0.
"""

import argparse
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from .bi_encoder import query_tokens, section_tokens, vectors
from .companies import Company, Section, Turn, options, plain, trained_and_held
from .network import Bert, Optimiser, Words, padded, seconds

LONGEST_TURN, LONGEST = 64, 160


class Reader(nn.Module):
    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.score = nn.Linear(bert.words.weight.shape[1], 1)

    def forward(self, tokens: Tensor, kinds: Tensor, markers: Tensor) -> Tensor:
        """The score of each marker; `markers` are (row, position)."""
        states = self.bert(tokens, kinds)
        return self.score(states[markers[:, 0], markers[:, 1]]).squeeze(-1)


def turn_tokens(words: Words, turn: Turn) -> list[int]:
    """What was said before, latest first behind the utterance, as much as there is room for."""
    said = words.of(turn.text)[: LONGEST_TURN - 3]
    before = []
    for it in reversed(turn.history[-2:]):
        before += [words.sep, *words.of(it["text"])]
    return [words.cls, *said, *before[: LONGEST_TURN - 2 - len(said)], words.sep]


class Pairs:
    """Pairs of turns and sections as rows, with the places of their markers."""

    def __init__(self, words: Words):
        self.words = words
        self.known: dict[int, list[list[int]]] = {}

    def parts(self, section: Section) -> list[list[int]]:
        if id(section) not in self.known:
            parts = [self.words.of(section.title), *(self.words.of(it) for it in section.sentences)]
            self.known[id(section)] = parts
        return self.known[id(section)]

    def row(self, turn: list[int], section: Section) -> tuple[list[int], list[int], list[int]]:
        title, *sentences = self.parts(section)
        tokens = [*turn, *title]
        markers = []
        for sentence in sentences:
            # What there is no room for cannot be chosen; its marker stands at the end.
            room = len(tokens) + 2 < LONGEST
            markers.append(len(tokens) if room else -1)
            if room:
                tokens += [self.words.marker, *sentence][: LONGEST - 1 - len(tokens)]
        tokens.append(self.words.sep)
        return tokens, [0] * len(turn) + [1] * (len(tokens) - len(turn)), markers


def answers(turn: Turn, section: Section) -> list[int]:
    """The sentences of a section that answer; all of it where none is named word for word."""
    if section.place not in turn.gold:
        return []
    said = [plain(it) for it in turn.answer]
    columns = [it.replace("_", " ") + ":" for it in turn.answer]
    cells = lambda text: " ".join(text.replace("|", " ").split())
    found = [
        at
        for at, sentence in enumerate(section.sentences)
        if any(it in cells(sentence) or cells(sentence) in it for it in said)
        or any(sentence.startswith(column) for column in columns)
    ]
    return found or (list(range(len(section.sentences))) if len(turn.gold) == 1 else [])


@torch.no_grad()
def candidates(network: Bert, words: Words, company: Company, most: int) -> dict[str, list[int]]:
    """The nearest sections of each turn, by the bi-encoder."""
    sections = vectors(network, [section_tokens(words, it) for it in company.sections])
    queries = vectors(network, [query_tokens(words, turn.query) for turn in company.turns])
    near = (queries @ sections.T).topk(min(most, len(company.sections)))
    return {turn.id: row for turn, row in zip(company.turns, near.indices.tolist())}


def scores(reader: Reader, pairs: Pairs, turn: list[int], sections: list[Section]) -> list[list[float]]:
    """The scores of all sentences of these sections."""
    rows = [pairs.row(turn, section) for section in sections]
    return split(run(reader, rows), rows)


def run(reader: Reader, rows) -> Tensor:
    tokens = padded([row[0] for row in rows])
    kinds = padded([row[1] for row in rows])
    places = [(at, place) for at, row in enumerate(rows) for place in row[2] if place >= 0]
    return reader(tokens, kinds, torch.tensor(places))


def split(flat: Tensor, rows) -> list[list[float]]:
    values, found = iter(flat.float().tolist()), []
    for row in rows:
        found.append([next(values) if place >= 0 else float("-inf") for place in row[2]])
    return found


@torch.no_grad()
def measured(reader: Reader, pairs: Pairs, held: list[Company], near: dict[str, dict], most: int) -> dict:
    right, sentence, total, false, negatives, curve = 0, 0, 0, 0, 0, []
    for company in held:
        for turn in company.turns:
            if turn.kind not in ("document", "table", "unanswerable", "out_of_domain"):
                continue
            chosen = [company.sections[at] for at in near[company.name][turn.id][:most]]
            found = scores(reader, pairs, turn_tokens(pairs.words, turn), chosen)
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


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train reader", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--bi-encoder", type=Path, required=True, help="folder of a trained bi-encoder")
    options(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--groups", type=int, default=6, help="turns in a step")
    parser.add_argument("--candidates", type=int, default=4, help="sections that a turn is read with in training")
    parser.add_argument("--layers", type=int, default=6)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    words = Words(args.model)
    trained, held = trained_and_held(args)
    finder = Bert.pretrained(args.model)
    raw = {it.name: candidates(finder.eval(), words, it, 12) for it in trained}
    finder = Bert.pretrained(args.bi_encoder)
    near = {it.name: candidates(finder.eval(), words, it, 12) for it in trained + held}

    bert = Bert.pretrained(args.bi_encoder)
    bert.layers = bert.layers[: args.layers]
    reader = Reader(bert)
    pairs = Pairs(words)
    turns = [(it, turn) for it in trained for turn in it.turns]
    steps = [batch for _ in range(args.epochs) for batch in chunked(turns, args.groups)]
    reader.bfloat16()
    optimiser = Optimiser(list(reader.parameters()), args.rate, len(steps))
    began, losses = time.time(), []
    for at, batch in enumerate(steps):
        rows, targets = [], []
        for company, turn in batch:
            chosen = negatives_and_gold(company, turn, raw, near, args.candidates)
            said = turn_tokens(words, turn)
            targets.append([(len(rows) + n, answers(turn, section)) for n, section in enumerate(chosen)])
            rows += [pairs.row(said, section) for section in chosen]
        flat = run(reader, rows).float()
        starts, n = [], 0
        for row in rows:
            starts.append(n)
            n += sum(place >= 0 for place in row[2])
        loss = torch.zeros(())
        for group in targets:
            first, last = group[0][0], group[-1][0]
            end = starts[last + 1] if last + 1 < len(rows) else len(flat)
            logits = torch.cat([flat[starts[first] : end], torch.zeros(1)])
            right = [
                starts[row] - starts[first] + place
                for row, places in group
                for place in places
                if place < sum(it >= 0 for it in rows[row][2])
            ] or [len(logits) - 1]
            loss = loss + torch.logsumexp(logits, 0) - torch.logsumexp(logits[right], 0)
        (loss / len(batch)).backward()
        optimiser.step()
        losses.append(loss.item() / len(batch))
        if (at + 1) % 100 == 0 or at + 1 == len(steps):
            print(f"{at + 1}/{len(steps)} loss {sum(losses[-100:]) / len(losses[-100:]):.3f} {seconds(time.time() - began)}", flush=True)
        if (at + 1) % (len(steps) // args.epochs) == 0:
            for most in (3, 5, 10):
                print("held out, of", most, measured(reader, pairs, held, near, most), flush=True)
            args.out.mkdir(parents=True, exist_ok=True)
            save_file({k: v.float() for k, v in reader.state_dict().items()}, args.out / "reader.safetensors")


def chunked(turns: list, size: int) -> list[list]:
    order = random.sample(turns, len(turns))
    return [order[at : at + size] for at in range(0, len(order), size)]


def negatives_and_gold(company: Company, turn: Turn, raw, near, most: int) -> list[Section]:
    """The places that answer, and others: what the encoders confuse, now and then by chance."""
    places = {section.place: n for n, section in enumerate(company.sections)}
    chosen = [places[place] for place in turn.gold]
    confused = raw[company.name][turn.id][:8] + near[company.name][turn.id][:6]
    pool = [at for at in dict.fromkeys(random.sample(confused, len(confused))) if at not in chosen]
    while len(chosen) < most:
        others = pool if pool and random.random() < 0.85 else range(len(company.sections))
        at = random.choice(list(others))
        if at not in chosen:
            chosen.append(at)
        pool = [it for it in pool if it != at]
    random.shuffle(chosen)
    return [company.sections[at] for at in chosen]


if __name__ == "__main__":
    main()
