"""Trains a LoRA adapter that makes a language model the gate (RAGate-PEFT, section 3): behind a prompt it learns to say
whether the turn needs knowledge. Only the answer's first token has a loss, over the whole vocabulary."""

import argparse
import json
import math
import random
import sys
import time
from dataclasses import asdict

import torch
import torch.nn.functional as F

from . import Refused
from .examples import Example, Prompts, examples_of, fingerprint, gate_of
from .figures import best_threshold, figures
from .network import base_of, by_length, can_quantise, device, logits_behind, probabilities, save_adapter, with_new_adapter
from .settings import Settings, command, parsed

# The rate rises over this share of the steps, and then falls to 0 on a line, as is usual for LoRA; the paper says neither.
RISING = 0.03
# The longest gradient of a step, as transformers' own trainer has it.
LONGEST_GRADIENT = 1.0


def main() -> None:
    args, settings = parsed(__doc__)
    torch.set_num_threads(args.threads)
    try:
        Run(args, settings).train()
    except Refused as reason:
        sys.exit(f"deploy/training/train adapter fit: {reason}")


class Run:
    """A training run, which goes on from its checkpoint as if it had not been stopped."""

    def __init__(self, args: argparse.Namespace, settings: Settings):
        self.args, self.settings = args, settings
        self.checkpoint = args.out / "checkpoint.pt"
        if self.checkpoint.exists() and not args.resume:
            raise Refused(f"{self.checkpoint}: training began here already; add --resume to go on, or give another --out")
        if (args.out / "gate.json").exists():
            raise Refused(f"{args.out / 'gate.json'}: a gate is here already; give another --out")
        self.gate = gate_of(args.examples)
        prompts = Prompts(args.base)
        self.answers = prompts.answers(self.gate["answers"])
        self.trained, self.held_out, self.too_long = self.parted(prompts)
        is_quantised = can_quantise()
        print(f"the base is {'held at 4 bits (nf4)' if is_quantised else 'in full precision: nf4 needs CUDA and bitsandbytes'}")
        base = base_of(args.base, is_quantised)
        positions = getattr(base.config, "max_position_embeddings", settings.length)
        if settings.length > positions:
            raise Refused(f"{args.base}: it reads {positions} tokens at most; give --length {positions}")
        self.name = base.name_or_path
        torch.manual_seed(settings.seed)
        self.model = with_new_adapter(base, settings.rank, settings.alpha, settings.dropout)
        self.weights = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        self.optimiser = torch.optim.AdamW(self.weights.values(), lr=settings.rate, weight_decay=0.0)
        # What a checkpoint belongs to.
        self.of = {
            **asdict(settings), "base": self.name, "examples": fingerprint(args.examples / "examples.jsonl"),
            "quantised": "nf4" if is_quantised else "none",
        }  # fmt: skip
        self.step, self.seconds, self.best = 0, 0.0, None
        if self.checkpoint.exists():
            self.load()

    def parted(self, prompts: Prompts) -> tuple[list[tuple], list[tuple], int]:
        """Returns examples to train on and held-out ones, each as its tokens and whether its answer is the positive one, and
        how many were left out."""
        known = examples_of(self.args.examples, self.gate["answers"])
        rows = [(prompts.encode(it.prompt), it) for it in known]
        short = [(tokens, it) for tokens, it in rows if len(tokens) <= self.settings.length]
        too_long = len(rows) - len(short)

        def part(of: list[tuple[list[int], Example]], is_held_out: bool) -> list[tuple[list[int], bool]]:
            return [(tokens, it.is_positive) for tokens, it in of if it.is_held_out == is_held_out]

        trained, held_out = part(short, False), part(short, True)
        print(f"{len(trained)} examples to train on, {len(held_out)} held out, {too_long} longer than {self.settings.length} tokens")
        if len({is_positive for _, is_positive in trained}) < 2 or not held_out:
            raise Refused(
                f"{self.args.examples / 'examples.jsonl'}: too few examples have at most {self.settings.length} tokens; "
                "give a larger --length, or write shorter prompts"
            )
        return trained, held_out, too_long

    def load(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        other = [name for name, value in self.of.items() if state["of"].get(name) != value]
        if other:
            raise Refused(
                f"{self.checkpoint}: it was trained with other settings ({', '.join(other)}); give the same ones, or another --out"
            )
        self.copy(state["weights"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds, self.best = state["step"], state["seconds"], state["best"]
        print(f"going on after step {self.step}", flush=True)

    @torch.no_grad()
    def copy(self, weights: dict) -> None:
        for name, weight in self.weights.items():
            weight.copy_(weights[name])

    def save(self) -> None:
        partial = self.checkpoint.with_suffix(".part")
        state = {
            "of": self.of, "weights": {name: weight.detach() for name, weight in self.weights.items()},
            "optimiser": self.optimiser.state_dict(), "step": self.step, "seconds": self.seconds, "best": self.best,
        }  # fmt: skip
        torch.save(state, partial)
        partial.rename(self.checkpoint)

    def train(self) -> None:
        args, settings = self.args, self.settings
        args.out.mkdir(parents=True, exist_ok=True)
        print(f"{sum(weight.numel() for weight in self.weights.values()):,} weights of the adapter", flush=True)
        losses, began = [], time.monotonic()
        while self.step < settings.steps:
            losses.append(self.one_step())
            self.step += 1
            if self.step % args.checkpoint_steps == 0 or self.step == settings.steps:
                self.seconds += time.monotonic() - began
                self.report(losses)
                self.save()
                losses, began = [], time.monotonic()
        self.finish()

    def one_step(self) -> float:
        """Takes a step, which depends on the seed and its number alone, and returns the mean loss of its examples."""
        settings = self.settings
        torch.manual_seed(settings.seed * 1_000_003 + self.step)
        chosen = [self.trained[at] for at in places(len(self.trained), settings, self.step)]
        rows = [tokens for tokens, _ in chosen]
        total = 0.0
        self.model.train()
        for part in by_length(rows, settings.rows):
            right = torch.tensor([self.answers[0 if chosen[at][1] else 1] for at in part], device=device())
            with torch.autocast(device().type, torch.bfloat16, enabled=settings.precision == "bf16"):
                logits = logits_behind(self.model, [rows[at] for at in part])
            loss = F.cross_entropy(logits, right, reduction="sum") / len(rows)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), LONGEST_GRADIENT)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.rate * schedule(self.step, settings.steps)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return total

    def told(self, of: list[tuple[list[int], bool]]) -> list[tuple[float, bool]]:
        """Returns the scores of examples, and whether each is positive."""
        self.model.eval()
        scores = probabilities(self.model, [tokens for tokens, _ in of], self.answers, self.settings.rows)
        return list(zip(scores, (is_positive for _, is_positive in of)))

    def report(self, losses: list[float]) -> None:
        """Judges some held-out examples, writes a line about the steps since the last line, and remembers the best adapter."""
        began = time.monotonic()
        watched = random.Random(self.settings.seed).sample(self.held_out, min(self.args.watch, len(self.held_out)))
        with torch.autocast(device().type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            told = self.told(watched)
        # Of the two answers alone.
        loss = -sum(math.log(max(score if is_positive else 1.0 - score, 1e-12)) for score, is_positive in told) / len(told)
        auc = figures(told, 0.5)["auc"]
        line = {
            "step": self.step, "seconds": round(self.seconds), "judging": round(time.monotonic() - began, 1),
            "loss": round(sum(losses) / len(losses), 4), "held_out": {"loss": round(loss, 4), "auc": round(auc, 4)},
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        with (self.args.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        if self.settings.keep == "best" and (self.best is None or auc > self.best["auc"]):
            weights = {name: weight.detach().clone() for name, weight in self.weights.items()}
            self.best = {"auc": auc, "step": self.step, "weights": weights}

    def finish(self) -> None:
        """Writes the adapter that is kept, with the threshold and figures of all held-out examples."""
        settings, out = self.settings, self.args.out
        if self.best:
            self.copy(self.best["weights"])
            print(f"the adapter of step {self.best['step']} is kept")
        told = self.told(self.held_out)
        threshold = best_threshold(told)
        found = figures(told, threshold)
        save_adapter(self.model, out)
        positives = lambda of: sum(is_positive for _, is_positive in of)
        said = {name: value for name, value in asdict(settings).items() if name not in ("rows", "parts")}
        said |= {
            "batch": f"{settings.rows}x{settings.parts}", "quantised": self.of["quantised"], "answer_tokens": self.answers,
            "trained_on": {"examples": len(self.trained), "positives": positives(self.trained)},
            "held_out": {"examples": len(self.held_out), "positives": positives(self.held_out)},
            "too_long": self.too_long,
        }  # fmt: skip
        gate = self.gate | {"threshold": threshold, "figures": found, "base": self.name, "settings": said}
        gate["command"] = command(self.args, settings)
        (out / "gate.json").write_text(json.dumps(gate, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.checkpoint.unlink(missing_ok=True)
        print(json.dumps({"threshold": round(threshold, 4)} | {name: round(value, 4) for name, value in found.items()}))
        print(f"trained in {self.seconds:.0f} seconds; the adapter is in {out}", flush=True)


def places(count: int, settings: Settings, step: int) -> list[int]:
    """Returns which of `count` examples a step learns from: the next ones of passes, each in an order of its own."""
    size = settings.rows * settings.parts
    orders: dict[int, list[int]] = {}
    found = []
    for at in range(step * size, (step + 1) * size):
        epoch, place = divmod(at, count)
        if epoch not in orders:
            orders[epoch] = random.Random(f"{settings.seed}/{epoch}").sample(range(count), count)
        found.append(orders[epoch][place])
    return found


def schedule(step: int, steps: int) -> float:
    """Returns the factor of the highest rate for a step."""
    rising = max(1, round(RISING * steps))
    return min((step + 1) / rising, (steps - step) / max(1, steps - rising))


if __name__ == "__main__":
    main()
