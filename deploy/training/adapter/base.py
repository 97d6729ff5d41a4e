"""Writes the unified model as a folder in the layout of transformers, so that an adapter of our own has a language model
of our own to stand on. It is one of Llama's shape with a tokenizer of bytes, so nothing is lost: the 8 bits of the GGUF
file become the same numbers in full precision."""

import argparse
import json
import sys
from pathlib import Path

import gguf
import torch
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from unified.export import _GGUF, CONTEXT, write_safetensors
from unified.network import Shape
from unified.vocabulary import END, PAD, START, special_tokens

from . import Refused

SHIPPED = Path(__file__).parents[3] / "src/weights/unified/reader-en.gguf"
_PARTS = {theirs: ours for ours, theirs in _GGUF.items()}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train adapter base",
        description="Writes the unified model as OUT/config.json, model.safetensors, tokenizer.json and "
        "tokenizer_config.json, for `train adapter fit --base OUT`.",
        epilog="Example: deploy/training/train adapter base --out unified-base",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument(
        "--from", dest="source", default="unified", metavar="MODEL",
        help="`unified`, the model that ships with the engine (the default), or a GGUF file of `train export`",
    )  # fmt: skip
    return parser.parse_args()


def main() -> None:
    args = parsed()
    try:
        write(SHIPPED if args.source == "unified" else Path(args.source), args.out)
    except Refused as reason:
        sys.exit(f"deploy/training/train adapter base: {reason}")


def write(source: Path, out: Path) -> None:
    """Writes the folder.

    Raises Refused for a file that is missing or no unified model."""
    if not source.is_file():
        raise Refused(f"{source}: there is no such file; give `unified` or a GGUF file that `train export` wrote")
    try:
        reader = gguf.GGUFReader(source)
    except ValueError as error:
        raise Refused(f"{source}: {error}; give a GGUF file that `train export` wrote") from error
    shape, made = shape_of(reader, source), tokenizer(reader, source)
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out, weights(reader, shape), shape)
    made.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START, "eos_token": END, "pad_token": PAD,
        "model_max_length": CONTEXT,
    }  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    print(f"{out}: {shape.layers} layers of {shape.width}, {shape.vocabulary} tokens")


def field(reader: gguf.GGUFReader, source: Path, name: str):
    found = reader.get_field(name)
    if found is None:
        raise Refused(f"{source}: there is no {name}; give a GGUF file that `train export` wrote")
    return found.contents()


def shape_of(reader: gguf.GGUFReader, source: Path) -> Shape:
    """Returns the network's shape, which has to be one that `unified.network` can have."""
    of = lambda name: field(reader, source, name)
    if of("general.architecture") != "llama":
        raise Refused(f"{source}: its architecture is no llama; give a GGUF file that `train export` wrote")
    shape = Shape(
        vocabulary=len(of("tokenizer.ggml.tokens")),
        width=of("llama.embedding_length"),
        layers=of("llama.block_count"),
        head=of("llama.rope.dimension_count"),
        theta=of("llama.rope.freq_base"),
        epsilon=round(of("llama.attention.layer_norm_rms_epsilon"), 9),
    )
    given = [of(f"llama.{name}") for name in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")]
    if given != [shape.heads, shape.key_heads, shape.wide]:
        raise Refused(
            f"{source}: heads, key heads and feed-forward are {given}, not those of a unified model; an adapter can stand "
            "on another model too, if you give its folder in the layout of transformers to `train adapter fit --base`"
        )
    return shape


def weights(reader: gguf.GGUFReader, shape: Shape) -> dict[str, Tensor]:
    """Returns the weights in full precision by their names in `unified.network`."""
    found = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        parts = tensor.name.removesuffix(".weight").split(".")
        if parts[0] != "blk":
            found[{"token_embd": "embeddings.weight", "output_norm": "norm"}[parts[0]]] = weight
            continue
        part = _PARTS[parts[2]]
        if part in ("query", "key"):
            weight = halves(weight, shape.heads if part == "query" else shape.key_heads)
        found[f"layers.{parts[1]}.{part}" + ("" if part.endswith("norm") else ".weight")] = weight
    return found


def halves(weight: Tensor, heads: int) -> Tensor:
    """Returns the rows of queries or keys in the order of transformers: `unified.export.neighbours` undone."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def tokenizer(reader: gguf.GGUFReader, source: Path) -> Tokenizer:
    """Returns the tokenizer, as `unified.vocabulary` learned it."""
    of = lambda name: field(reader, source, f"tokenizer.ggml.{name}")
    tokens = of("tokens")
    known = (of("model"), of("pre"), tokens[: len(special_tokens())])
    if known != ("gpt2", "smollm", special_tokens()):
        raise Refused(f"{source}: its tokenizer is not the unified model's; give a GGUF file that `train export` wrote")
    merges = [tuple(merge.split(" ")) for merge in of("merges")]
    made = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens()])
    return made


if __name__ == "__main__":
    main()
