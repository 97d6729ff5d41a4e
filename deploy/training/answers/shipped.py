"""Opens the reader that ships, as PyTorch computes it: with the numbers that the engine has."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import zstandard
from safetensors.torch import load, save_file
from torch import Tensor

from .intents import Intents
from .network import Bert, Words, layer_names
from .reader import Reader, Texts


@dataclass
class Shipped:
    """A reader with its bi-encoder."""

    language: str
    words: Words
    bert: Bert
    reader: Reader
    texts: Texts
    intents: Intents


def unpacked(path: Path) -> tuple[dict, dict]:
    """Returns the card and the tensors of a shipped file."""
    made = zstandard.decompress(path.read_bytes())
    length = int.from_bytes(made[:8], "little")
    card = json.loads(json.loads(made[8 : 8 + length])["__metadata__"]["turnstream"])
    tensors = load(made)
    for name in [it for it in tensors if it.endswith(".scale")]:
        of = name.removesuffix(".scale")
        tensors[of] = tensors[of].float() * tensors.pop(name)[:, None]
    return card, tensors


def joined(reading: dict, own: int) -> dict:
    """Returns the reader's layers and score by their names in training, where query, key and value are one."""
    made = {name: reading[name] for name in ("score.weight", "score.bias", "roles.weight", "nearness")}
    for at in range(own):
        for mine, theirs in layer_names(f"upper.{at}", f"reading.{at}"):
            three = [theirs.replace("qkv", f"attention.self.{part}") for part in ("query", "key", "value")]
            made[mine] = torch.cat([reading[name] for name in three]) if ".qkv." in theirs else reading[theirs]
    return made


def shipped(path: Path) -> Shipped:
    """Opens a file such as `reader-en.safetensors.zst`, whose name tells its language."""
    card, tensors = unpacked(path)
    reading = {name: tensors.pop(name) for name in list(tensors) if name.startswith(("score.", "roles.", "nearness", "reading."))}
    of_intents = {name.removeprefix("intents."): tensors.pop(name) for name in list(tensors) if name.startswith("intents.")}
    intents = Intents(of_intents["hidden.weight"].shape[1])
    intents.load_state_dict(of_intents)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "tokenizer.json").write_text(json.dumps(card["tokenizer"]))
        save_file(tensors, folder / "model.safetensors")
        words, bert = Words(folder), Bert.pretrained(folder).eval()
    own = 1 + max(int(name.split(".")[1]) for name in reading if name.startswith("reading."))
    reader = Reader(bert, own)
    reader.load_state_dict(joined(reading, own))
    language = path.name.split(".")[0].removeprefix("reader-")
    return Shipped(language, words, bert, reader, Texts(bert, words, own), intents)
