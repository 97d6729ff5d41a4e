"""What an utterance is for (a question, small talk, a hand-off ...), told by what the reader's network makes of it: at three
heights of its lower layers, where more of the tone is left, and in its vector."""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .bi_encoder import of_texts
from .companies import INTENTS, Company
from .network import Bert, Words, mean

# Numbers between what intents are told by and their logits.
HIDDEN = 64
PASSES, BATCH, RATE, DECAY, DROPPED, SMOOTHED = 30, 128, 3e-3, 1e-2, 0.3, 0.05


class Intents(nn.Module):
    """Two layers that recognise intents."""

    def __init__(self, inputs: int):
        super().__init__()
        self.hidden = nn.Linear(inputs, HIDDEN)
        self.logits = nn.Linear(HIDDEN, len(INTENTS))

    def forward(self, told_by: Tensor, dropped: float = 0.0) -> Tensor:
        return self.logits(F.dropout(F.gelu(self.hidden(told_by)), dropped))


def told_by(network: Bert, words: Words, texts: list[str], own: int) -> Tensor:
    """Returns what intents are told by: the means of a text's rows above a half, three quarters and all of the layers below
    the reader's `own` upper ones, and its vector."""
    lower = len(network.layers) - own

    def joined(tokens: Tensor) -> Tensor:
        rows, mask = network.embedded(tokens)
        means, done = [], 0
        for layers in (lower // 2, lower * 3 // 4, lower, len(network.layers)):
            rows = network.through(rows, mask, network.layers[done:layers])
            means.append(mean(rows, tokens))
            done = layers
        return torch.cat(means, 1)

    with torch.no_grad():
        return of_texts(words, texts, joined)


def turns(of: list[Company]) -> list[tuple[str, str]]:
    return [(turn.text, turn.intent) for company in of for turn in company.turns]


def utterances(path: Path) -> list[tuple[str, str]]:
    """Reads utterances that belong to no company: a text and its kind a line."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(line["text"], line["kind"]) for line in lines]


def labels(of: list[tuple[str, str]]) -> Tensor:
    """Returns the places of the intents of texts."""
    return torch.tensor([INTENTS.index(intent) for _, intent in of])


def fit(inputs: Tensor, intents: Tensor, of_companies: int, seed: int) -> Intents:
    """Fits both layers. Rare intents have a larger weight, since a missed hand-off is worse than one too many. The first
    `of_companies` rows are turns of companies: other utterances show what an intent sounds like, and these how often it
    comes."""
    torch.manual_seed(seed)
    counts = torch.bincount(intents, minlength=len(INTENTS)).float()
    weight = (len(intents) / (len(INTENTS) * counts)).sqrt()
    found = Intents(inputs.shape[1])
    optimiser = torch.optim.AdamW(found.parameters(), lr=RATE, weight_decay=DECAY)
    done, steps = 0, PASSES * (len(intents) // BATCH)
    for _ in range(PASSES):
        for rows in torch.randperm(len(intents))[: len(intents) // BATCH * BATCH].split(BATCH):
            optimiser.param_groups[0]["lr"] = RATE * (1 - done / steps)
            loss = F.cross_entropy(found(inputs[rows], DROPPED), intents[rows], weight=weight, label_smoothing=SMOOTHED)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
    share = lambda of: of / of.sum()
    often = torch.bincount(intents[:of_companies], minlength=len(INTENTS)).float()
    with torch.no_grad():
        found.logits.bias += share(often).log() - share(counts).log()
    return found.requires_grad_(False)
