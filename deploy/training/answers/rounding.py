"""Rounds the matrices of a trained reader to few levels, so that what ships is small: once compressed, about four bits a
weight.

Every number of a row becomes a whole number of the row's step. What a column's rounding changes in the outputs for real
texts, the columns that are rounded after it make up for (GPTQ, Frantar et al., arXiv 2210.17323). Levels near 0 are the
most frequent, so that compression gives them the shortest codes; an outlier keeps its value."""

import random

import torch
from torch import Tensor, nn

from .companies import Company, Section, Turn
from .network import Bert, Layer, Words, padded
from .reader import Near, Reader, Texts

# A row's step as a share of the spread of its numbers: in layers, and in the table of words.
STEP, STEP_OF_WORDS = 0.2, 0.37
LEVELS = 127
# Added to the diagonal of the inputs' products, as a share of its mean.
DAMPING = 0.03
BLOCK = 128
# How many companies' texts are used, how many of them for the reader's own layers, and what of each.
COMPANIES, READ, SECTIONS, TURNS, PAIRS = 16, 7, 14, 20, 30

Batch = tuple[Tensor, Tensor]  # rows, and the mask of those that attention sees


def steps(weight: Tensor, share: float) -> Tensor:
    """Returns the step of each row, as a column."""
    spread, highest = weight.std(1, keepdim=True), weight.abs().amax(1, keepdim=True)
    return torch.maximum(share * spread, highest / LEVELS).clamp(min=1e-8)


def to_steps(numbers: Tensor, step: Tensor) -> Tensor:
    return (numbers / step).round().clamp(-LEVELS, LEVELS) * step


def for_inputs(weight: Tensor, step: Tensor, products: Tensor) -> Tensor:
    """Rounds a matrix so that its outputs change little for inputs with these sums of `products`, column × column."""
    order = products.diag().argsort(descending=True)
    products = products[order][:, order].double()
    products += DAMPING * products.diag().mean() * torch.eye(len(order))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products))
    upper = torch.linalg.cholesky(inverse, upper=True).float()
    left, made = weight[:, order].clone(), torch.empty_like(weight)
    for begin in range(0, len(order), BLOCK):
        end = min(begin + BLOCK, len(order))
        wrong = torch.empty(len(weight), end - begin)
        for at in range(begin, end):
            made[:, order[at]] = to_steps(left[:, at], step[:, 0])
            wrong[:, at - begin] = (left[:, at] - made[:, order[at]]) / upper[at, at]
            left[:, at + 1 : end] -= wrong[:, at - begin, None] * upper[at, at + 1 : end]
        left[:, end:] -= wrong @ upper[begin:end, end:]
    return made


def round_layer(layer: Layer, name: str, batches: list[Batch], made: dict[str, Tensor]) -> list[Batch]:
    """Rounds a layer for its inputs, one matrix after the other; returns its outputs. All tokens count alike, however
    long their rows are."""
    for part in ("qkv", "out", "up", "down"):
        linear: nn.Linear = getattr(layer, part)
        products = torch.zeros(linear.in_features, linear.in_features)

        def add(_, inputs: tuple[Tensor]):
            rows = nn.functional.normalize(inputs[0][mask[:, 0, 0]], dim=-1)
            products.add_(rows.T @ rows)

        hook = linear.register_forward_pre_hook(add)
        for rows, mask in batches:
            layer(rows, mask)
        hook.remove()
        step = made[f"{name}.{part}.weight"] = steps(linear.weight, STEP)
        linear.weight.copy_(for_inputs(linear.weight, step, products))
    return [(layer(rows, mask), mask) for rows, mask in batches]


@torch.no_grad()
def round_weights(bert: Bert, reader: Reader, words: Words, companies: list[Company]) -> dict[str, Tensor]:
    """Rounds the weights of both in place, for texts of `companies`; returns the steps of each rounded matrix by its name
    in training."""
    drawn = random.Random(0)
    chosen = drawn.sample(companies, min(COMPANIES, len(companies)))
    sections: list[Section] = [it for of in chosen for it in drawn.sample(of.sections, min(SECTIONS, len(of.sections)))]
    turns: dict[str, list[Turn]] = {of.name: drawn.sample(of.turns, min(TURNS, len(of.turns))) for of in chosen}
    texts = Texts(bert, words, len(reader.upper))
    tokens = [texts.of_section(section)[0] for section in sections]
    tokens += [texts.tokens(turn.text) for of in turns.values() for turn in of]
    tokens.sort(key=len)
    made = {"words.weight": steps(bert.words.weight, STEP_OF_WORDS)}
    bert.words.weight.copy_(to_steps(bert.words.weight, made["words.weight"]))
    batches = [bert.embedded(padded([list(it) for it in tokens[at : at + 32]])) for at in range(0, len(tokens), 32)]
    for at, layer in enumerate(bert.layers):
        batches = round_layer(layer, f"layers.{at}", batches, made)
        print(f"layer {at} rounded", flush=True)
    pairs = []
    for of in chosen[:READ]:
        near = Near(bert, words, of)
        read = [(turn, of.sections[at]) for turn in turns[of.name] for at in near.first(turn, 4)]
        read = drawn.sample(read, min(PAIRS, len(read)))
        pairs += [(turn, section, near.of(turn, section)) for turn, section in read]
    joined = sorted((reader.joined(row) for row in texts.rows(pairs)), key=len)
    batches = [reader.batch(joined[at : at + 16]) for at in range(0, len(joined), 16)]
    for at, layer in enumerate(reader.upper):
        batches = round_layer(layer, f"upper.{at}", batches, made)
    return made
