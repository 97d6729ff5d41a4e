"""Chooses, on companies that no network was trained on, how the reader's scores become logits (with phrasings that
staff taught) and how certain an answer is, and measures the share of right answers at each certainty."""

import argparse
import json
import re
from pathlib import Path

import torch
from torch import Tensor

from .bi_encoder import queries, text_vectors
from .companies import Company, Turn, answers, companies
from .reader import Near
from .shipped import Shipped, shipped

# The engine's defaults: sections to read, sentences to say, and the largest logit distance from the best sentence.
READ, SAID, BESIDE = 4, 3, 1.5
# What tells a right answer from a wrong one, by the names of the engine's `Confidence`.
FEATURES = ("logit", "sentence", "sentences", "words", "before", "nearest", "taught", "is_taught")
MOST_WORDS = 25
# A Chinese character counts as a word.
HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
# The weight of the squared factors of all features but the first in the fit.
SHRINKAGE = 0.003
# The tried cosines from which a phrasing counts, and the tried factors of what is above.
LEAST_TAUGHT = [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7]
TAUGHT = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24]
JUDGED = ("document", "table", "multi", "unanswerable", "out_of_domain")


class Read:
    """A turn with its candidates and the reader's scores."""

    def __init__(
        self, turn: Turn, company: Company, chosen: list[int], near: list[Tensor], taught: Tensor, scores: list[Tensor]
    ):
        self.company, self.turn = company.name, turn
        self.sections = [company.sections[at] for at in chosen]
        # The cosines of each sentence, and of its section, with the question.
        self.near, self.taught, self.scores = near, taught[chosen], scores
        self.right = [answers(turn, section) for section in self.sections]

    def logits(self, of: dict) -> list[Tensor]:
        phrased = lambda cosine: of["taught"] * (cosine - of["least_taught"]).clamp(min=0)
        return [of["slope"] * row + of["offset"] + phrased(cosine) for row, cosine in zip(self.scores, self.taught)]

    def loss(self, of: dict) -> Tensor:
        """Returns the cross-entropy over the sentences of all candidates and none."""
        rows = self.logits(of)
        flat = torch.cat([*rows, torch.zeros(1)])
        right, before = [], 0
        for row, places in zip(rows, self.right):
            right += [before + at for at in places if at < len(row)]
            before += len(row)
        return torch.logsumexp(flat, 0) - torch.logsumexp(flat[right or [len(flat) - 1]], 0)

    def best(self, of: dict) -> tuple[list[Tensor], int]:
        """Returns the logits, and the place of the section with the best sentence."""
        rows = self.logits(of)
        return rows, max(range(len(rows)), key=lambda at: rows[at].max().item())

    def is_right(self, of: dict) -> bool:
        """Whether the chosen sentences of the best section are right."""
        rows, best = self.best(of)
        row = rows[best]
        chosen = [at for at in row.argsort(descending=True).tolist() if row[at] >= row.max() - BESIDE][:SAID]
        return any(at in self.right[best] for at in chosen) and len(self.turn.gold) == 1

    def features(self, of: dict) -> list[float]:
        """Returns the `FEATURES`."""
        rows, best = self.best(of)
        rest = torch.cat([*(row for at, row in enumerate(rows) if at != best), torch.zeros(1)])
        return [
            (torch.logsumexp(rows[best], 0) - torch.logsumexp(rest, 0)).item(),
            self.near[best][rows[best].argmax(), 0].item(),
            len(rows[best]),
            min(len(self.turn.text.split()) + len(HAN.findall(self.turn.text)), MOST_WORDS),
            bool(self.turn.history),
            max(near[0, 1].item() for near in self.near),
            self.taught[best].item(),
            bool(self.taught.max() > 0),
        ]


@torch.no_grad()
def read(folder: Path, by: Shipped) -> tuple[list[Read], list[Read]]:
    """Reads the turns of all companies of a language without phrasings and with them."""
    words, bert, reader, texts = by.words, by.bert, by.reader, by.texts
    plain, taught = [], []
    for company in companies(folder):
        if company.language != by.language or not company.turns:
            continue
        places = [section.place for section in company.sections]
        near = Near(bert, words, company)
        lines = (folder / company.name / "phrasings.jsonl").read_text(encoding="utf-8").splitlines()
        known = [it for it in map(json.loads, lines) if it["gold"] in places]
        phrasings = text_vectors(bert, words, [it["text"] for it in known])
        leads = [places.index(it["gold"]) for it in known]
        turns = [turn for turn in company.turns if turn.kind in JUDGED]
        for turn, asked in zip(turns, queries(bert, words, turns)):
            of_sections, cosines = near.of_sections[near.turns[turn.id]], torch.zeros(len(places))
            for at, cosine in zip(leads, phrasings @ asked):
                cosines[at] = max(cosines[at], cosine)
            nearer = torch.maximum(of_sections, cosines)
            for found, nearest, phrased in ((plain, of_sections, torch.zeros(len(places))), (taught, nearer, cosines)):
                chosen = nearest.topk(READ).indices.tolist()
                pairs = [(turn, section, near.of(turn, section)) for section in (company.sections[at] for at in chosen)]
                found.append(Read(turn, company, chosen, [it for *_, it in pairs], phrased, reader(texts.rows(pairs))))
        print(company.name, flush=True)
    return plain, taught


def fitted(turns: list[Read], free: dict[str, float], fixed: dict) -> dict:
    """Fits the numbers that make the right sentences most likely."""
    numbers = {name: torch.tensor(float(value), requires_grad=True) for name, value in free.items()}
    optimiser = torch.optim.LBFGS(list(numbers.values()), max_iter=100, line_search_fn="strong_wolfe")

    def step():
        optimiser.zero_grad()
        loss = sum(turn.loss({**fixed, **numbers}) for turn in turns) / len(turns)
        loss.backward()
        return loss

    optimiser.step(step)
    return {**fixed, **{name: round(number.item(), 3) for name, number in numbers.items()}}


def confidence(features: Tensor, right: Tensor) -> Tensor:
    """Fits a logistic regression; returns the factor of each feature, and a bias."""
    mean, spread = features.mean(0), features.std(0).clamp(min=1e-6)
    scaled = (features - mean) / spread
    weight = torch.zeros(features.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def step():
        optimiser.zero_grad()
        logits = scaled @ weight[:-1] + weight[-1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, right)
        loss = loss + SHRINKAGE * weight[1:-1].square().sum()
        loss.backward()
        return loss

    optimiser.step(step)
    factors = weight.detach()[:-1] / spread
    return torch.cat([factors, weight.detach()[-1:] - (factors @ mean)[None]])


def applied(weight: Tensor, features: Tensor) -> Tensor:
    """Returns the confidence that the fit gives, 0 to 1."""
    return (features @ weight[:-1] + weight[-1]).sigmoid()


def left_out(turns: list[Read], features: Tensor, right: Tensor) -> Tensor:
    """Returns the confidence in the answer to each turn, by a fit on the other companies."""
    made = torch.zeros(len(turns), dtype=torch.float64)
    for company in {it.company for it in turns}:
        held = torch.tensor([it.company == company for it in turns])
        made[held] = applied(confidence(features[~held], right[~held]), features[held])
    return made


def precision(said: list[tuple[float, bool]], of: int = 24) -> list[list[float]]:
    """Returns points of a line that never falls, through groups of answers of similar probability (pool adjacent
    violators)."""
    groups = []
    said = sorted(said)
    for begin in range(0, len(said), of):
        chunk = said[begin : begin + of]
        groups.append([sum(p for p, _ in chunk), sum(right for _, right in chunk), len(chunk)])
        while len(groups) > 1 and groups[-2][1] / groups[-2][2] >= groups[-1][1] / groups[-1][2]:
            last = groups.pop()
            groups[-1] = [a + b for a, b in zip(groups[-1], last)]
    return [[round(p / n, 4), round(right / n, 4)] for p, right, n in groups]


def curve(said: list[tuple[float, bool]], turns: list[Read]) -> dict:
    """Returns recall and the share of false answers at each least precision."""
    answerable = sum(bool(it.turn.gold) for it in turns)
    found, right, false = {}, 0, 0
    for count, ((_, is_right), it) in enumerate(sorted(zip(said, turns), key=lambda it: -it[0][0]), 1):
        right, false = right + is_right, false + (not it.turn.gold)
        for level in (0.6, 0.65, 0.75, 0.85):
            if right / count >= level:
                found[level] = (round(right / answerable, 3), round(false / (len(turns) - answerable), 3))
    return found


def main():
    parser = argparse.ArgumentParser(prog="python -m answers.calibration", description=__doc__)
    parser.add_argument("--reader", type=Path, required=True, help="reader-en.safetensors.zst, or the one of another language")
    parser.add_argument("--companies", type=Path, required=True, help="companies with phrasings, not trained on")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    plain, taught = read(args.companies, shipped(args.reader))
    none = {"least_taught": 1.0, "taught": 0.0}
    chosen = fitted(plain, {"slope": 1.0, "offset": 0.0}, none)
    with torch.no_grad():
        loss = lambda of: sum(turn.loss(of).item() for turn in taught)
        tried = [{**chosen, "least_taught": least, "taught": slope} for least in LEAST_TAUGHT for slope in TAUGHT]
        chosen = min(tried, key=loss)
        turns = plain + taught
        features = torch.tensor([it.features(chosen) for it in turns], dtype=torch.float64)
        right = torch.tensor([float(it.is_right(chosen)) for it in turns], dtype=torch.float64)
    certain = left_out(turns, features, right)
    said = list(zip(certain.tolist(), right.bool().tolist()))
    print("untaught", curve(said[: len(plain)], plain))
    print("taught", curve(said[len(plain) :], taught))
    weight = confidence(features, right)
    chosen["confidence"] = {name: round(it, 4) for name, it in zip((*FEATURES, "bias"), weight.tolist())}
    chosen["precision"] = precision(said)
    args.out.write_text(json.dumps(chosen) + "\n")
    print(json.dumps(chosen))


if __name__ == "__main__":
    main()
