"""Makes soft labels for relevance with a dual encoder (UniMS-RAG, section 5.4: the best of the labels that it
compares).

The encoder makes two sums of vectors, of the dialogue and of a piece of evidence, and their cosine says how well the two
fit. The vectors are those of characters and pairs of characters, each with a learned weight. Training separates the
evidence that a reply used from the other candidates of the source (softmax). No encoder labels a dialogue that it was
trained on: there are five encoders, each for the fifth that it did not see. A label is the candidate's share of the
softmax, whose temperature is chosen on a tenth that the encoder was not trained on either.

`python -m unified.labels --data DATA --out labels.jsonl.gz`, for KBP; `--relevance-labels` of the training reads them.
"""

import argparse
import functools
import gzip
import json
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .corpora import records

FOLDS = 5
BUCKETS = 1 << 14
WIDTH = 128
EPOCHS = 6
BATCH = 64
# A dialogue has three parts: the last utterance, the exchange before it, and everything earlier.
PARTS = 3


@dataclass
class Question:
    """One reply, and the candidates of one source for what it used."""

    dialogue: int
    # The dialogue's id, and the reply's place in it.
    of: tuple[str, int]
    parts: list[str]
    keys: list[str]
    texts: list[str]
    gold: list[int]


def questions(data: Path) -> list[Question]:
    found = []
    for at, record in enumerate(records(data / "kbp/train.jsonl.gz")):
        persona = {key: text.replace(" ", "") for key, text in record["persona"].items()}
        known = {
            f"{key}-{name}": text.replace(" ", "")
            for key, texts in record["persona_kg"].items()
            for name, text in texts.items()
        }
        said: list[str] = []
        for turn, exchange in enumerate(record["conversation"]):
            user, system = exchange["U"].replace(" ", ""), exchange["S"].replace(" ", "")
            parts = [user, "".join(said[-2:]), "".join(said[:-2])]
            said += [user, system]
            for texts, used in zip((persona, known), exchange["P-K"]):
                keys = list(texts)
                gold = [keys.index(key) for key in used if key in texts]
                if gold and len(keys) > len(gold):
                    of = (record["id"], turn)
                    found.append(Question(at, of, parts, keys, list(texts.values()), gold))
    return found


@functools.lru_cache(maxsize=None)
def grams(text: str) -> list[int]:
    """Returns the numbers of a text's characters and pairs of characters; 0 alone for an empty text."""
    pairs = [text[at : at + 2] for at in range(len(text) - 1)]
    return [zlib.crc32(gram.encode()) % BUCKETS for gram in [*text, *pairs]] or [0]


class DualEncoder(nn.Module):
    """Makes vectors of texts; those of dialogues go through a matrix, which begins as the identity."""

    def __init__(self):
        super().__init__()
        self.vectors = nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum")
        self.counts = nn.Embedding(BUCKETS, 1)
        nn.init.zeros_(self.counts.weight)
        self.parts = nn.Parameter(torch.tensor([1.0, 0.5, 0.2]))
        self.said = nn.Parameter(torch.eye(WIDTH))

    def texts(self, texts: list[str]) -> Tensor:
        """Returns the vectors of texts, [texts, width], of length 1."""
        bags = [grams(text) for text in texts]
        flat = torch.tensor([gram for bag in bags for gram in bag])
        offsets = torch.tensor([0, *[len(bag) for bag in bags[:-1]]]).cumsum(0)
        counts = F.softplus(self.counts(flat)).squeeze(1)
        return F.normalize(self.vectors(flat, offsets, per_sample_weights=counts), dim=-1)

    def scores(self, asked: list[Question]) -> list[Tensor]:
        """Returns ten times the cosine of each candidate of each question."""
        said = self.texts([part for question in asked for part in question.parts])
        said = (said.view(len(asked), PARTS, WIDTH) * self.parts[:, None]).sum(1)
        said = F.normalize(said @ self.said, dim=-1)
        texts = self.texts([text for question in asked for text in question.texts])
        scores, at = [], 0
        for row, question in zip(said, asked):
            scores.append(10.0 * (texts[at : at + len(question.texts)] @ row))
            at += len(question.texts)
        return scores


def loss(scores: list[Tensor], asked: list[Question], times: float = 1.0) -> Tensor:
    """Returns the negative log-probability of the used candidates among all."""
    of = [
        torch.logsumexp(times * scores_of, 0) - torch.logsumexp(times * scores_of[question.gold], 0)
        for scores_of, question in zip(scores, asked)
    ]
    return torch.stack(of).mean()


def trained(asked: list[Question], seed: int) -> DualEncoder:
    torch.manual_seed(seed)
    encoder = DualEncoder()
    optimiser = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    rng = random.Random(seed)
    for _ in range(EPOCHS):
        order = rng.sample(asked, len(asked))
        for at in range(0, len(order), BATCH):
            batch = order[at : at + BATCH]
            optimiser.zero_grad()
            loss(encoder.scores(batch), batch).backward()
            optimiser.step()
    return encoder


@torch.no_grad()
def scored(encoder: DualEncoder, asked: list[Question]) -> list[Tensor]:
    return [scores for at in range(0, len(asked), 256) for scores in encoder.scores(asked[at : at + 256])]


def labelled(asked: list[Question]) -> tuple[list[tuple[Question, Tensor]], dict]:
    """Returns each question with its labels, and how often the highest label is right, by source."""
    found: list[tuple[Question, Tensor]] = []
    for fold in range(FOLDS):
        held = [question for question in asked if question.dialogue % FOLDS == fold]
        others = [question for question in asked if question.dialogue % FOLDS != fold]
        chosen = [question for question in others if question.dialogue // FOLDS % 10 == 0]
        encoder = trained([question for question in others if question.dialogue // FOLDS % 10], fold)
        scores = scored(encoder, chosen)
        times = min((at / 10 for at in range(2, 31)), key=lambda times: loss(scores, chosen, times).item())
        found += [(question, F.softmax(times * of, 0)) for question, of in zip(held, scored(encoder, held))]
        print(f"{fold + 1} of {FOLDS}: {len(held)} labelled, scores times {times}", flush=True)
    right: dict[str, list[int]] = {}
    for question, label in found:
        source = "documents" if "-" in question.keys[0] else "persona"
        right.setdefault(source, []).append(label.argmax().item() in question.gold)
    return found, {source: round(sum(of) / len(of), 4) for source, of in right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m unified.labels", description="Labels relevance on KBP's training split.")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="where the labels go: JSON lines, gzip")
    args = parser.parse_args()
    found, right = labelled(questions(args.data))
    with gzip.open(args.out, "wt", encoding="utf-8") as file:
        for question, label in found:
            dialogue, turn = question.of
            tenths = {key: round(10 * share) for key, share in zip(question.keys, label.tolist())}
            file.write(json.dumps({"dialogue": dialogue, "turn": turn, "relevance": tenths}) + "\n")
    print(f"the first is right: {right}")


if __name__ == "__main__":
    main()
