"""The decoder: Llama's shape (RMS norm, rotary positions, grouped queries, gated feed-forward, tied
embeddings), so that the engine and other programs can read it, with the mask that `stream` describes."""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int = 512
    layers: int = 4
    head: int = 64
    theta: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def heads(self) -> int:
        return self.width // self.head

    @property
    def key_heads(self) -> int:
        return self.heads // 2

    @property
    def wide(self) -> int:
        return 3 * self.width

    def as_dict(self) -> dict:
        return asdict(self)


def visible(turns: Tensor, blocks: Tensor) -> Tensor:
    """Returns which token sees which, [batch, 1, to, from]. Each sees the utterances before it in its dialogue. Within
    its own turn, a plan sees itself, a piece of evidence the plan and itself, and a wording all of that and itself.
    `turns` are numbered through a row, with -1 in padding; dialogues of one row differ in `turns // 1000`."""
    length = turns.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=turns.device).tril()
    dialogue = turns.div(1000, rounding_mode="floor")
    same_dialogue = dialogue[:, :, None] == dialogue[:, None, :]
    same_turn = turns[:, :, None] == turns[:, None, :]
    of, to = blocks[:, None, :], blocks[:, :, None]
    scoped = same_turn & (to != 0) & ((of == to) | (of == -1) | (to == -2))
    return (causal & same_dialogue & ((of == 0) | scoped))[:, None]


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head, shape.key_heads * shape.head
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.query = nn.Linear(shape.width, queries, bias=False)
        self.key = nn.Linear(shape.width, keys, bias=False)
        self.value = nn.Linear(shape.width, keys, bias=False)
        self.output = nn.Linear(queries, shape.width, bias=False)
        self.wide_norm = nn.Parameter(torch.ones(shape.width))
        self.gate = nn.Linear(shape.width, shape.wide, bias=False)
        self.up = nn.Linear(shape.width, shape.wide, bias=False)
        self.down = nn.Linear(shape.wide, shape.width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        shape = self.shape
        batch, length, _ = x.shape
        normed = F.rms_norm(x, (shape.width,), self.norm, shape.epsilon)

        def heads(of: Tensor, count: int) -> Tensor:
            return of.view(batch, length, count, shape.head).transpose(1, 2)

        def turned(of: Tensor) -> Tensor:
            first, second = of.chunk(2, dim=-1)
            return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)

        queries = turned(heads(self.query(normed), shape.heads))
        group = shape.heads // shape.key_heads
        keys = turned(heads(self.key(normed), shape.key_heads)).repeat_interleave(group, dim=1)
        values = heads(self.value(normed), shape.key_heads).repeat_interleave(group, dim=1)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, length, -1))
        normed = F.rms_norm(x, (shape.width,), self.wide_norm, shape.epsilon)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Network(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        nn.init.normal_(self.embeddings.weight, std=0.02)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and "embeddings" not in name:
                deep = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * shape.layers) ** 0.5 if deep else 0.02)

    def forward(self, tokens: Tensor, positions: Tensor, turns: Tensor, blocks: Tensor) -> Tensor:
        """Returns the states of the last layer, [batch, length, width]; `logits` reads them."""
        half = self.shape.head // 2
        frequencies = self.shape.theta ** (-torch.arange(half, device=tokens.device) / half)
        angles = positions[:, None, :, None] * frequencies
        x = self.embeddings(tokens)
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = visible(turns, blocks)
        for layer in self.layers:
            x = layer(x, cosines, sines, mask)
        return F.rms_norm(x, (self.shape.width,), self.norm, self.shape.epsilon)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embeddings.weight)
