"""How an adapter is trained: the settings, their presets, and the options of `train adapter fit`."""

import argparse
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """How an adapter is trained. A step learns from `rows` × `parts` examples, `rows` at a time."""

    rank: int = 16
    alpha: int = 64
    dropout: float = 0.1
    rate: float = 2e-4
    steps: int = 4000
    rows: int = 8
    parts: int = 4
    # The most tokens of a prompt.
    length: int = 512
    # Of the products; weights and sums have full precision.
    precision: str = "bf16"
    # Which step's adapter is kept.
    keep: str = "last"
    seed: int = 0


# Rank, alpha, dropout, rate, steps and batch are the paper's and its authors'; the rest is ours.
PRESETS = {"paper": Settings()}


def batch(given: str) -> tuple[int, int]:
    """Reads "8x4", or "8" for one part."""
    rows, _, parts = given.partition("x")
    if not (rows.isdecimal() and (parts or "1").isdecimal() and int(rows) * int(parts or 1)):
        raise argparse.ArgumentTypeError(f"{given!r} is no batch; give examples at a time and times, such as 8x4")
    return int(rows), int(parts or 1)


def positive(given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"{given!r} is no whole number above 0")
    return int(given)


def parsed(description: str) -> tuple[argparse.Namespace, Settings]:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/training/train adapter fit",
        description=f"{description} Writes OUT/adapter_config.json and adapter_model.safetensors, as peft does, and gate.json with "
        "the threshold and the figures on the examples that are held out.",
        epilog="Examples: deploy/training/train adapter fit --examples examples --base unified-base --out gate; "
        "deploy/training/train adapter fit --examples examples --base unified-base --out gate --rate 1e-3 --steps 500 --resume",
    )
    usual = PRESETS["paper"]
    parser.add_argument("--examples", type=Path, required=True, help="a folder with examples.jsonl and gate.json")
    parser.add_argument("--base", type=Path, required=True, help="the folder of a language model in the layout of transformers")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the adapter, and of checkpoints until it is done")
    parser.add_argument("--preset", choices=PRESETS, default="paper", help="settings that the options below change (default paper)")
    parser.add_argument("--steps", type=positive, help=f"(paper: {usual.steps})")
    parser.add_argument(
        "--batch", type=batch, help=f"examples at a time, and times, of a step (paper: {usual.rows}x{usual.parts})"
    )
    parser.add_argument("--rate", type=float, help=f"the highest learning rate (paper: {usual.rate})")
    parser.add_argument("--rank", type=positive, help=f"(paper: {usual.rank})")
    parser.add_argument("--alpha", type=positive, help=f"(paper: {usual.alpha})")
    parser.add_argument("--dropout", type=float, help=f"(paper: {usual.dropout})")
    parser.add_argument(
        "--length", type=positive, help=f"tokens; examples with longer prompts are left out (default {usual.length})"
    )
    parser.add_argument(
        "--precision", choices=("bf16", "f32"),
        help="of products in training (default bf16); held-out examples are judged in f32 in the end",
    )  # fmt: skip
    parser.add_argument(
        "--keep", choices=("last", "best"), help="the last adapter, or that of the checkpoint with the best AUC (default last)"
    )
    parser.add_argument("--seed", type=int, help=f"(default {usual.seed})")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint-steps", type=positive, default=100, help="steps between checkpoints (default 100)")
    parser.add_argument("--watch", type=positive, default=256, help="held-out examples to judge at a checkpoint (default 256)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, if there is one")
    args = parser.parse_args()
    given = {name: getattr(args, name, None) for name in asdict(usual)}
    if args.batch:
        given["rows"], given["parts"] = args.batch
    preset = asdict(PRESETS[args.preset])
    return args, Settings(**preset | {name: value for name, value in given.items() if value is not None})


def command(args: argparse.Namespace, settings: Settings) -> str:
    """Returns the command with every setting, and with the names of folders alone."""
    words = ["deploy/training/train", "adapter", "fit"]
    for name in ("examples", "base", "out"):
        words += [f"--{name}", getattr(args, name).resolve().name]
    said = asdict(settings)
    said["batch"] = f"{said.pop('rows')}x{said.pop('parts')}"
    for name, value in said.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)
