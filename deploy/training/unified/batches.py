"""Rows of one length, each filled with windows of several dialogues, in an order that seed and
epoch determine: a stopped run continues where it was."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .corpora import Make
from .stream import Renderer, Window


@dataclass
class Batch:
    """A batch; each tensor is [rows, length]."""

    tokens: Tensor
    weights: Tensor
    positions: Tensor
    turns: Tensor
    blocks: Tensor

    def __iter__(self):
        return iter((self.tokens, self.weights, self.positions, self.turns, self.blocks))


def is_held_out(corpus: str, at: int) -> bool:
    """Whether a dialogue is held out, to watch the loss: every hundredth is."""
    return zlib.crc32(f"{corpus}/{at}".encode()) % 100 == 0


def windows(makes: list[Make], renderer: Renderer, seed: int, epoch: int) -> Iterator[Window]:
    """Yields the windows of an epoch, shuffled by dialogue."""
    order = list(range(len(makes)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    for at in order:
        rng = random.Random(f"{seed}/{epoch}/{at}")
        yield from renderer.windows(makes[at](rng))


def batches(found: Iterator[Window], rows: int, length: int, pad: int) -> Iterator[Batch]:
    """Fills rows with windows, first-fit; yields a batch when a window fits into no row."""
    open_rows: list[list[Window]] = [[] for _ in range(rows)]
    room = [length] * rows
    for window in found:
        at = next((at for at in range(rows) if len(window) <= room[at]), None)
        if at is None:
            yield _batch(open_rows, length, pad)
            open_rows, room, at = [[] for _ in range(rows)], [length] * rows, 0
        open_rows[at].append(window)
        room[at] -= len(window)
    if any(open_rows):
        yield _batch(open_rows, length, pad)


def _batch(rows: list[list[Window]], length: int, pad: int) -> Batch:
    tokens = torch.full((len(rows), length), pad)
    weights = torch.zeros(len(rows), length)
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    turns = torch.full((len(rows), length), -1)
    blocks = torch.zeros(len(rows), length, dtype=torch.long)
    for row, windows in enumerate(rows):
        end = 0
        for dialogue, window in enumerate(windows):
            span = slice(end, end + len(window))
            tokens[row, span] = torch.tensor(window.tokens)
            weights[row, span] = torch.tensor(window.weights)
            positions[row, span] = torch.tensor(window.positions)
            turns[row, span] = torch.tensor(window.turns) + 1000 * dialogue
            blocks[row, span] = torch.tensor(window.blocks)
            end = span.stop
    return Batch(tokens, weights, positions, turns, blocks)
