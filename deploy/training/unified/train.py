"""Trains the unified model; `deploy/training/train --help` shows how to call it."""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Batch, batches, is_held_out, windows
from .corpora import SHIPPED, Make, makers
from .network import Network, Shape
from .stream import Renderer
from .vocabulary import PAD, Vocabulary

# The largest share of a row's positions with a loss; beyond it, random positions are left out.
LOSS_SHARE = 0.75


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train",
        description="Trains the unified model and exports it. Stopped at any time, it goes on where it was "
        "when called again with the same --out.",
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="where checkpoints and the model go")
    parser.add_argument("--corpora", default=",".join(SHIPPED), help="data sets, with commas between")
    parser.add_argument("--relevance-labels", type=Path, help="what `python -m unified.labels` wrote, for kbp")
    parser.add_argument(
        "--without",
        choices=("mask", "relevance"),
        help="ablations: without the evidence attention mask, or without learning relevance",
    )
    parser.add_argument("--tokens", type=float, default=50e6, help="tokens to train on (default 50e6)")
    parser.add_argument("--width", type=int, default=512, help="a multiple of 128 (default 512)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=20, help="rows of a batch")
    parser.add_argument("--length", type=int, default=384, help="tokens of a row")
    parser.add_argument("--history", type=int, default=128, help="tokens of earlier turns before a window")
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint-seconds", type=float, default=300.0)
    parser.add_argument("--no-compile", action="store_true", help="do not compile the network")
    args = parser.parse_args()
    if args.width % 128 or args.width < 128:
        parser.error(f"--width is {args.width}; give a multiple of 128")
    return args


class Optimisers:
    """Muon for matrices, AdamW for embeddings and norms, over copies in full precision of weights that
    compute in half precision."""

    def __init__(self, network: Network, rate: float):
        self._network, self._rate = network, rate
        self._masters = {name: weight.detach().float().clone() for name, weight in network.named_parameters()}
        matrix = {name: weight for name, weight in self._masters.items() if weight.ndim == 2 and "embeddings" not in name}
        rest = [weight for name, weight in self._masters.items() if name not in matrix]
        self._all = [
            torch.optim.Muon(matrix.values(), lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]

    def step(self, factor: float) -> None:
        """Takes one step at a factor of the highest rate, with the gradients in the network."""
        for name, weight in self._network.named_parameters():
            self._masters[name].grad = weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(self._masters.values(), 1.0)
        for optimiser in self._all:
            for group in optimiser.param_groups:
                group["lr"] = self._rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, weight in self._network.named_parameters():
                weight.copy_(self._masters[name])

    def state(self) -> dict:
        return {"weights": self._masters, "optimisers": [of.state_dict() for of in self._all]}

    def load(self, state: dict) -> None:
        with torch.no_grad():
            for name, weight in self._network.named_parameters():
                self._masters[name].copy_(state["weights"][name])
                weight.copy_(self._masters[name])
        for optimiser, saved in zip(self._all, state["optimisers"]):
            optimiser.load_state_dict(saved)


def places_that_count(batch: Batch, cap: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the places of the loss, always `cap` of them: the place in the batch without its last column, the
    token that has to follow there, and its weight (0 for filling)."""
    targets, counts = batch.tokens[:, 1:].reshape(-1), batch.weights[:, 1:].reshape(-1)
    places = counts.nonzero().squeeze(1)
    if len(places) > cap:
        places = places[torch.randperm(len(places))[:cap].sort().values]
    missing = cap - len(places)
    counted = F.pad(counts[places], (0, missing))
    places = F.pad(places, (0, missing))
    return places, targets[places], counted


class Losses:
    """The loss of a batch; compiled for the one shape of batches unless switched off."""

    def __init__(self, network: Network, cap: int, is_compiled: bool):
        self._network, self._cap = network, cap
        compiled = (lambda of: torch.compile(of, dynamic=False)) if is_compiled else (lambda of: of)
        self._hidden = compiled(network)
        self._head = compiled(_cross_entropy)

    def of(self, batch: Batch) -> Tensor:
        """Returns the weighted mean over the places."""
        places, targets, counted = places_that_count(batch, self._cap)
        hidden = self._hidden(batch.tokens, batch.positions, batch.turns, batch.blocks)[:, :-1]
        hidden = hidden.reshape(-1, self._network.shape.width)[places]
        loss = self._head(hidden, targets, self._network.embeddings.weight)
        return (loss * counted).sum() / counted.sum()


def _cross_entropy(hidden: Tensor, targets: Tensor, embeddings: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, embeddings).float(), targets, reduction="none")


def schedule(done: float) -> float:
    """Returns the factor of the rate: a short warm-up, then a linear fall to 0."""
    return min(done / 0.01, 1.0) * max(0.0, 1.0 - done)


def watched(network: Network, held: dict[str, list[Batch]], vocabulary: Vocabulary) -> dict:
    """Returns, on held-out dialogues and by data set, the loss of a response's token and the shares of right plan
    and relevance tokens."""
    first = vocabulary.relevance(0)
    figures = {}
    with torch.no_grad():
        for corpus, of in held.items():
            sums = dict.fromkeys(("loss", "weight", "plans", "plans right", "relevances", "relevances right"), 0.0)
            for batch in of:
                hidden = network(batch.tokens, batch.positions, batch.turns, batch.blocks)[:, :-1]
                logits = network.logits(hidden).float()
                targets, weights, blocks = batch.tokens[:, 1:], batch.weights[:, 1:], batch.blocks[:, 1:]
                loss = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
                response = (weights > 0) & (blocks == -2)
                sums["loss"] += loss[response].sum().item()
                sums["weight"] += response.sum().item()
                best = logits.argmax(-1)
                plans = (blocks == -1) & (weights > 0)
                relevances = (blocks > 0) & (weights > 0)
                judged = logits[..., first : first + 11].argmax(-1) + first
                sums["plans"] += plans.sum().item()
                sums["plans right"] += (plans & (best == targets)).sum().item()
                sums["relevances"] += relevances.sum().item()
                sums["relevances right"] += (relevances & (judged == targets)).sum().item()
            share = lambda right, of: round(sums[right] / max(1.0, sums[of]), 4)
            figures[corpus] = {
                "response": share("loss", "weight"),
                "plan": share("plans right", "plans"),
                "relevance": share("relevances right", "relevances"),
            }
    return figures


@dataclass
class Progress:
    """The progress of a run."""

    epoch: int = 0
    # Within the epoch.
    batches: int = 0
    tokens: float = 0.0
    seconds: float = 0.0


class Run:
    """A training that continues where it was stopped."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.trained, held_out = parted(args)
        self.vocabulary = vocabulary_of(args, self.trained)
        kept = {"has_mask": args.without != "mask", "has_relevance": args.without != "relevance"}
        self.renderer = Renderer(self.vocabulary, args.length, args.history, **kept)
        self.held_out = {
            corpus: list(self.batches(makes, -1))[:3] for corpus, makes in held_out.items()
        }
        shape = Shape(len(self.vocabulary), args.width, args.layers)
        (args.out / "shape.json").write_text(json.dumps(shape.as_dict()))
        self.network = Network(shape).bfloat16()
        self.optimisers = Optimisers(self.network, args.rate)
        self.progress = Progress()
        self.checkpoint = args.out / "checkpoint.pt"
        if self.checkpoint.exists():
            self.load()

    def batches(self, makes: list[Make], epoch: int) -> Iterator[Batch]:
        args = self.args
        found = windows(makes, self.renderer, args.seed, epoch)
        return batches(found, args.rows, args.length, self.vocabulary.control(PAD))

    def load(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        self.optimisers.load(state["optimisers"])
        self.progress = Progress(**state["progress"])
        torch.set_rng_state(state["random"])
        print(f"going on at {self.progress.tokens / 1e6:.1f} million tokens", flush=True)

    def save(self) -> None:
        partial = self.checkpoint.with_suffix(".part")
        state = {"optimisers": self.optimisers.state(), "progress": asdict(self.progress)}
        torch.save({**state, "random": torch.get_rng_state()}, partial)
        partial.rename(self.checkpoint)

    def report(self, recent: list[float]) -> None:
        """Writes a line about the batches since the last line, to standard output and to the log."""
        progress = self.progress
        line = {
            "million_tokens": round(progress.tokens / 1e6, 2),
            "epoch": progress.epoch,
            "seconds": round(progress.seconds),
            "loss": round(sum(recent) / len(recent), 4),
            "held_out": watched(self.network, self.held_out, self.vocabulary),
        }
        print(json.dumps(line), flush=True)
        with (self.args.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")

    def train(self) -> None:
        args, progress = self.args, self.progress
        losses = Losses(self.network, int(args.rows * args.length * LOSS_SHARE), not args.no_compile)
        since, recent = time.monotonic(), []
        while progress.tokens < args.tokens:
            for at, batch in enumerate(self.batches(self.trained, progress.epoch)):
                if at < progress.batches:
                    continue
                loss = losses.of(batch)
                loss.backward()
                self.optimisers.step(schedule(progress.tokens / args.tokens))
                recent.append(loss.item())
                progress.tokens += (batch.turns >= 0).sum().item()
                progress.batches = at + 1
                is_done = progress.tokens >= args.tokens
                if is_done or time.monotonic() - since > args.checkpoint_seconds:
                    progress.seconds += time.monotonic() - since
                    self.report(recent)
                    self.save()
                    since, recent = time.monotonic(), []
                if is_done:
                    return
            progress.epoch, progress.batches = progress.epoch + 1, 0


def parted(args: argparse.Namespace) -> tuple[list[Make], dict[str, list[Make]]]:
    """Returns the dialogues to train on, and the held-out ones by data set."""
    trained: list[Make] = []
    held_out: dict[str, list[Make]] = {}
    counts: dict[str, int] = {}
    for corpus, make in makers(args.data, tuple(args.corpora.split(",")), args.relevance_labels):
        at = counts.get(corpus, 0)
        counts[corpus] = at + 1
        (held_out.setdefault(corpus, []) if is_held_out(corpus, at) else trained).append(make)
    return trained, held_out


def main() -> None:
    args = parsed()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    parameters = sum(weight.numel() for weight in run.network.parameters())
    print(f"{len(run.trained)} dialogues, {parameters:,} parameters", flush=True)
    run.train()
    print(f"trained; export it with: deploy/training/train export --out {args.out}", flush=True)


def vocabulary_of(args: argparse.Namespace, makes: list) -> Vocabulary:
    """Returns the tokens, learned once from the utterances and evidence of the dialogues."""
    path = args.out / "tokenizer.json"
    if not path.exists():
        rng = random.Random(args.seed)

        def texts():
            for make in rng.sample(makes, min(len(makes), 20_000)):
                for turn in make(rng):
                    yield " " + turn.user
                    yield " " + turn.response
                    for evidence in turn.evidence:
                        yield " " + evidence.text

        Vocabulary.learn(texts(), args.vocabulary).save(path)
    return Vocabulary.load(path)


if __name__ == "__main__":
    main()
