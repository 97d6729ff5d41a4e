"""Computes what a base and an adapter say to prompts, by transformers and peft: the engine's own figures have to be
near these."""

import argparse
import json
import sys
from pathlib import Path

import torch

from . import Refused
from .examples import Prompts, gate_of, lines_of
from .network import base_of, probabilities, with_adapter


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train adapter check",
        description=f"{__doc__} A line of OUT has the prompt, its `tokens`, the `probability` of the first answer, and "
        "that `without_adapter`. All in full precision.",
        epilog="Example: deploy/training/train adapter check --base unified-base --adapter gate --prompts asked.jsonl "
        "--out told.jsonl",
    )
    parser.add_argument("--base", type=Path, required=True, help="the folder of the language model")
    parser.add_argument("--adapter", type=Path, required=True, help="the folder that `train adapter fit` wrote")
    parser.add_argument("--prompts", type=Path, required=True, help='JSON lines with a "prompt" each, such as examples.jsonl')
    parser.add_argument("--out", type=Path, required=True, help="the file of JSON lines")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    torch.set_num_threads(args.threads)
    try:
        asked = [one["prompt"] for one in lines_of(args.prompts, 'give JSON lines with a "prompt" each')]
        print(f"{args.out}: {check(args.base, args.adapter, asked, args.out)} prompts")
    except Refused as reason:
        sys.exit(f"deploy/training/train adapter check: {reason}")


def check(base: Path, adapter: Path, asked: list[str], out: Path) -> int:
    """Writes the probabilities of prompts, and returns how many they are."""
    prompts = Prompts(base)
    answers = prompts.answers(gate_of(adapter)["answers"])
    rows = [prompts.encode(prompt) for prompt in asked]
    model = with_adapter(base_of(base), adapter)
    told = probabilities(model, rows, answers)
    with model.disable_adapter():
        before = probabilities(model, rows, answers)
    with out.open("w", encoding="utf-8") as file:
        for prompt, tokens, probability, without in zip(asked, rows, told, before):
            line = {"prompt": prompt, "tokens": tokens, "probability": probability, "without_adapter": without}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return len(asked)


if __name__ == "__main__":
    main()
