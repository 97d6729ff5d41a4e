"""BERT in the shape of all-MiniLM-L6-v2, in plain matrix products, with its tokens and its optimiser."""

import json
import math
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

PAD = 0


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, vocabulary: int = 30522, width: int = 384, layers: int = 6, heads: int = 12):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor, kinds: Tensor | None = None) -> Tensor:
        return self.through(*self.embedded(tokens, kinds), self.layers)

    def embedded(self, tokens: Tensor, kinds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the rows before the first layer, and the mask of tokens that attention sees."""
        places = torch.arange(tokens.shape[1])
        kinds = torch.zeros_like(tokens) if kinds is None else kinds
        x = self.norm(self.words(tokens) + self.places(places) + self.kinds(kinds))
        return x, (tokens != PAD)[:, None, None, :]

    @staticmethod
    def through(x: Tensor, mask: Tensor, layers) -> Tensor:
        for layer in layers:
            x = layer(x, mask)
        return x

    @classmethod
    def pretrained(cls, folder: Path) -> "Bert":
        had = load_file(folder / "model.safetensors")
        had = {name.removeprefix("bert."): value.float() for name, value in had.items()}
        layers = 1 + max(int(name.split(".")[2]) for name in had if name.startswith("encoder.layer."))
        network = cls(*had["embeddings.word_embeddings.weight"].shape, layers)
        for at in range(layers):
            three = [f"encoder.layer.{at}.attention.self.{name}" for name in ("query", "key", "value")]
            for part in ("weight", "bias"):
                had[f"encoder.layer.{at}.qkv.{part}"] = torch.cat([had[f"{name}.{part}"] for name in three])
        network.load_state_dict({mine: had[theirs] for mine, theirs in names(layers)})
        return network

    def save(self, folder: Path, like: Path):
        """Writes a folder in the layout of sentence-transformers; copies its other files from `like`."""
        shutil.copytree(like, folder, dirs_exist_ok=True)
        mine, weights = self.state_dict(), {}
        for name, theirs in names(len(self.layers)):
            weights |= in_three(theirs, mine[name])
        save_file(weights, folder / "model.safetensors")


def in_three(name: str, value: Tensor) -> dict[str, Tensor]:
    """Returns a tensor by its name in transformers, where query, key and value are separate."""
    if ".qkv." not in name:
        return {name: value.float().contiguous()}
    parts = zip(("query", "key", "value"), value.float().chunk(3))
    return {name.replace("qkv", f"attention.self.{part}"): of_part.contiguous() for part, of_part in parts}


def names(layers: int) -> list[tuple[str, str]]:
    """Returns the name of each of the network's tensors with its name in transformers; query, key and value are one
    here."""
    embedding = {"words": "word_embeddings", "places": "position_embeddings", "kinds": "token_type_embeddings"}
    found = [(f"{mine}.weight", f"embeddings.{theirs}.weight") for mine, theirs in embedding.items()]
    found += [(f"norm.{part}", f"embeddings.LayerNorm.{part}") for part in ("weight", "bias")]
    for at in range(layers):
        found += layer_names(f"layers.{at}", f"encoder.layer.{at}")
    return found


def layer_names(mine: str, theirs: str) -> list[tuple[str, str]]:
    """Returns the same names for one layer."""
    parts = {
        "qkv": "qkv",
        "out": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    }
    return [(f"{mine}.{it}.{part}", f"{theirs}.{of}.{part}") for part in ("weight", "bias") for it, of in parts.items()]


def at_its_fastest(network: nn.Module) -> nn.Module:
    """Returns the network in half precision where the processor multiplies it fast (AMX)."""
    processor = Path("/proc/cpuinfo")
    has_amx = processor.exists() and "amx_bf16" in processor.read_text()
    return network.bfloat16() if has_amx else network


def write(folder: Path, network: dict[str, Tensor], tokenizer: str):
    """Writes a network of e5's shape, by the names in transformers, with the JSON of its tokenizer."""
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    save_file(network, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    words = network["embeddings.word_embeddings.weight"]
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": sum(name.endswith("attention.self.query.weight") for name in network),
        "num_attention_heads": 12,
        "intermediate_size": network["encoder.layer.0.intermediate.dense.weight"].shape[0],
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    pooling = {"word_embedding_dimension": words.shape[1], "pooling_mode_mean_tokens": True}
    for name, value in {
        "config.json": config,
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
    }.items():
        (folder / name).write_text(json.dumps(value, indent=2))


class Words:
    """Cuts texts into tokens."""

    def __init__(self, folder: Path):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.cls, self.sep = (self.tokenizer.token_to_id(it) for it in ("[CLS]", "[SEP]"))

    def of(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def mean(states: Tensor, tokens: Tensor) -> Tensor:
    """Returns the mean over tokens that are no padding, scaled to length 1."""
    seen = (tokens != PAD)[..., None].to(states.dtype)
    return F.normalize(((states * seen).sum(1) / seen.sum(1)).float(), dim=-1)


class Optimiser:
    """AdamW over copies in full precision of weights that compute in half precision."""

    def __init__(self, parameters: list[nn.Parameter], rate: float, steps: int):
        self.parameters = parameters
        self.copies = [parameter.detach().float().clone().requires_grad_() for parameter in parameters]
        self.adam = torch.optim.AdamW(self.copies, lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
        self.rate, self.steps, self.done = rate, steps, 0

    def step(self):
        warm = max(1, self.steps // 10)
        share = min((self.done + 1) / warm, max(0.0, (self.steps - self.done) / max(1, self.steps - warm)))
        self.adam.param_groups[0]["lr"] = self.rate * share
        for copy, parameter in zip(self.copies, self.parameters):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        nn.utils.clip_grad_norm_(self.copies, 1.0)
        self.adam.step()
        with torch.no_grad():
            for copy, parameter in zip(self.copies, self.parameters):
                parameter.copy_(copy)
        self.done += 1


def seconds(value: float) -> str:
    return f"{math.floor(value / 60)}:{value % 60:02.0f}"
