"""Fine-tunes a whole encoder of the BERT family, such as MiniLM, as the gate: what an adapter's figures are compared with. It
reads the current utterance beside the earlier ones, the latest first, and one output says whether the turn needs knowledge."""

import argparse
import json
import random
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn

from . import Refused
from .examples import examples_of, gate_of, json_of
from .figures import best_threshold, figures
from .fit import schedule
from .network import by_length
from .settings import positive

TOKENIZER = "tokenizer.json"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train adapter encoder",
        description=f"{__doc__} Writes OUT in the layout of transformers, and OUT/gate.json with the threshold and the figures on "
        "the examples that are held out. `turnstream eval gates --models` measures it.",
        epilog="Example: deploy/training/train adapter encoder --examples examples --base minilm --out gates/minilm",
    )
    parser.add_argument("--examples", type=Path, required=True, help="a folder that `turnstream train adapter` wrote")
    parser.add_argument("--base", type=Path, required=True, help="the folder of the encoder, in the layout of transformers")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the gate")
    parser.add_argument("--steps", type=positive, default=300, help="(default 300)")
    parser.add_argument("--batch", type=positive, default=32, help="examples of a step (default 32)")
    parser.add_argument("--rate", type=float, default=1e-4, help="the highest learning rate (default 1e-4)")
    parser.add_argument("--length", type=positive, default=128, help="the most tokens of a turn; the earliest are cut (default 128)")
    parser.add_argument("--seed", type=int, default=0, help="(default 0)")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    torch.set_num_threads(args.threads)
    try:
        fine_tune(args)
    except Refused as reason:
        sys.exit(f"deploy/training/train adapter encoder: {reason}")


class Pairs:
    """Turns utterances into tokens as the engine does: the longer text of a pair loses its end."""

    def __init__(self, base: Path, length: int):
        json_of(base / TOKENIZER, "put the tokenizer of the encoder into its folder")
        self._tokenizer = Tokenizer.from_file(str(base / TOKENIZER))
        self._tokenizer.enable_truncation(length)
        self._tokenizer.no_padding()

    def encode(self, utterance: str, earlier: str) -> tuple[list[int], list[int]]:
        found = self._tokenizer.encode(utterance, earlier)
        return found.ids, found.type_ids


def model_of(base: Path, length: int) -> nn.Module:
    """Opens an encoder with a new output, and forgets the places behind `length`, which training does not reach."""
    json_of(base / "config.json", "give a folder in the layout of transformers, such as `turnstream models pull minilm` makes")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    if model.config.model_type != "bert":
        raise Refused(f"{base}: it is a {model.config.model_type!r}; give an encoder of the kind bert, such as MiniLM")
    embeddings = model.bert.embeddings
    embeddings.position_embeddings = nn.Embedding.from_pretrained(embeddings.position_embeddings.weight[:length].clone(), freeze=False)
    model.config.max_position_embeddings = length
    return model


def logits(model: nn.Module, rows: list[tuple[list[int], list[int]]]) -> Tensor:
    """Returns an output for each row, [rows]."""
    longest = max(len(ids) for ids, _ in rows)
    tokens, kinds, seen = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
    for at, (ids, types) in enumerate(rows):
        tokens[at, : len(ids)], kinds[at, : len(ids)], seen[at, : len(ids)] = torch.tensor(ids), torch.tensor(types), 1
    places = torch.arange(longest)[None]
    return model(input_ids=tokens, token_type_ids=kinds, attention_mask=seen, position_ids=places).logits[:, 0]


@torch.no_grad()
def told(model: nn.Module, of: list[tuple]) -> list[tuple[float, bool]]:
    """Returns the scores of examples, and whether each is positive."""
    model.eval()
    scores = [0.0] * len(of)
    for places in by_length([row[0] for row, _ in of], 32):
        for at, score in zip(places, torch.sigmoid(logits(model, [of[at][0] for at in places])).tolist()):
            scores[at] = score
    return [(score, is_positive) for score, (_, is_positive) in zip(scores, of)]


def fine_tune(args: argparse.Namespace) -> None:
    gate = gate_of(args.examples)
    pairs = Pairs(args.base, args.length)
    trained, held_out = [], []
    for it in examples_of(args.examples, gate["answers"]):
        (held_out if it.is_held_out else trained).append((pairs.encode(it.utterance, it.earlier), it.is_positive))
    torch.manual_seed(args.seed)
    model = model_of(args.base, args.length)
    optimiser = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.01)
    chooser, order, began, losses = random.Random(args.seed), [], time.monotonic(), []
    for step in range(args.steps):
        while len(order) < args.batch:
            order += chooser.sample(range(len(trained)), len(trained))
        chosen, order = [trained[at] for at in order[: args.batch]], order[args.batch :]
        for group in optimiser.param_groups:
            group["lr"] = args.rate * schedule(step, args.steps)
        model.train()
        right = torch.tensor([float(is_positive) for _, is_positive in chosen])
        loss = F.binary_cross_entropy_with_logits(logits(model, [row for row, _ in chosen]), right)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if (step + 1) % 50 == 0:
            line = {"step": step + 1, "seconds": round(time.monotonic() - began), "loss": round(sum(losses) / len(losses), 4)}
            print(json.dumps(line), flush=True)
            losses = []
    scores = told(model, held_out)
    threshold = best_threshold(scores)
    found = figures(scores, threshold)
    model.save_pretrained(args.out)
    (args.out / TOKENIZER).write_bytes((args.base / TOKENIZER).read_bytes())
    settings = {name: getattr(args, name) for name in ("steps", "batch", "rate", "length", "seed")}
    card = gate | {"threshold": threshold, "figures": found, "base": args.base.resolve().name, "settings": settings}
    (args.out / "gate.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({"threshold": round(threshold, 4)} | {name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
