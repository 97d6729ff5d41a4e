"""Trains the unified model; `deploy/training/train --help` is how it is called."""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Batch, batches, is_held_out, windows
from .corpora import SHIPPED, makers
from .network import Network, Shape
from .stream import Renderer
from .vocabulary import PAD, Vocabulary

# Of a row, where a loss is computed at most; beyond it, positions are left out by chance.
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
    parser.add_argument("--tokens", type=float, default=50e6, help="tokens to train on (default 50e6)")
    parser.add_argument("--width", type=int, default=512)
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
    return parser.parse_args()


class Optimisers:
    """Muon for matrices, AdamW for embeddings and norms, over copies in full precision of weights that
    are computed with in half."""

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
        """One step at a factor of the highest rate, with the gradients as they are in the network."""
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


def losses(network: Network, batch: Batch, cap: int) -> tuple[Tensor, Tensor]:
    """The loss of each place that counts, and how much it counts; always `cap` of them."""
    tokens, weights, positions, turns, blocks = batch
    # An evidence follows another in the row, and its first token does not follow from that one.
    targets, counts = tokens[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
    hidden = network(tokens, positions, turns, blocks)[:, :-1].reshape(-1, network.shape.width)
    places = counts.nonzero().squeeze(1)
    if len(places) > cap:
        places = places[torch.randperm(len(places))[:cap].sort().values]
    missing = cap - len(places)
    counted = F.pad(counts[places], (0, missing))
    places = F.pad(places, (0, missing))
    logits = network.logits(hidden[places]).float()
    return F.cross_entropy(logits, targets[places], reduction="none"), counted


def schedule(done: float) -> float:
    """A short warm-up, then down to nothing in a line."""
    return min(done / 0.01, 1.0) * max(0.0, 1.0 - done)


def watched(network: Network, held: dict[str, list[Batch]], vocabulary: Vocabulary, cap: int) -> dict:
    """On dialogues that are held out: the loss of a response's token, and how many plans and relevances are
    right, by data set."""
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
                response = (weights >= 0.3) & (blocks == 0)
                sums["loss"] += loss[response].sum().item()
                sums["weight"] += response.sum().item()
                best = logits.argmax(-1)
                plans = (blocks < 0) & (weights > 0)
                relevances = (blocks > 0) & (weights > 0)
                near = (logits[..., first : first + 11].argmax(-1) + first - targets).abs() <= 0
                sums["plans"] += plans.sum().item()
                sums["plans right"] += (plans & (best == targets)).sum().item()
                sums["relevances"] += relevances.sum().item()
                sums["relevances right"] += (relevances & near).sum().item()
            share = lambda right, of: round(sums[right] / max(1.0, sums[of]), 4)
            figures[corpus] = {
                "response": share("loss", "weight"),
                "plan": share("plans right", "plans"),
                "relevance": share("relevances right", "relevances"),
            }
    return figures


def main() -> None:
    args = parsed()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    names = tuple(args.corpora.split(","))
    trained, held_out, counts = [], {}, {}
    for corpus, make in makers(args.data, names):
        at = counts[corpus] = counts.get(corpus, -1) + 1
        if is_held_out(corpus, at):
            held_out.setdefault(corpus, []).append(make)
        else:
            trained.append(make)
    vocabulary = vocabulary_of(args, trained)
    renderer = Renderer(vocabulary, args.length, args.history)
    pad = vocabulary.control(PAD)
    held = {
        corpus: list(batches(windows(makes, renderer, args.seed, -1), args.rows, args.length, pad))[:3]
        for corpus, makes in held_out.items()
    }
    shape = Shape(len(vocabulary), args.width, args.layers)
    (args.out / "shape.json").write_text(json.dumps(shape.as_dict()))
    network = Network(shape)
    parameters = sum(weight.numel() for weight in network.parameters())
    print(f"{len(trained)} dialogues, {parameters:,} parameters", flush=True)
    network = network.bfloat16()
    optimisers = Optimisers(network, args.rate)
    checkpoint = args.out / "checkpoint.pt"
    epoch, batch_of_epoch, seen, spent = 0, 0, 0.0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        optimisers.load(state["optimisers"])
        epoch, batch_of_epoch, seen, spent = state["at"]
        print(f"going on at {seen / 1e6:.1f} million tokens", flush=True)
    cap = int(args.rows * args.length * LOSS_SHARE)
    compute = losses if args.no_compile else losses_compiled(network)
    began = saved = time.monotonic()
    recent: list[float] = []
    while seen < args.tokens:
        made = batches(windows(trained, renderer, args.seed, epoch), args.rows, args.length, pad)
        for at, batch in enumerate(made):
            if at < batch_of_epoch:
                continue
            loss, counted = compute(network, batch, cap)
            mean = (loss * counted).sum() / counted.sum()
            mean.backward()
            optimisers.step(schedule(seen / args.tokens))
            recent.append(mean.item())
            seen += (batch.turns >= 0).sum().item()
            batch_of_epoch = at + 1
            now = time.monotonic()
            done = seen >= args.tokens
            if now - saved > args.checkpoint_seconds or done:
                spent, began = spent + now - began, now
                line = {
                    "million_tokens": round(seen / 1e6, 2), "epoch": epoch, "seconds": round(spent),
                    "loss": round(sum(recent) / len(recent), 4), "held_out": watched(network, held, vocabulary, cap),
                }  # fmt: skip
                print(json.dumps(line), flush=True)
                with (args.out / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                recent.clear()
                at_now = [epoch, batch_of_epoch, seen, spent]
                partial = checkpoint.with_suffix(".part")
                torch.save({"optimisers": optimisers.state(), "at": at_now}, partial)
                partial.rename(checkpoint)
                saved = time.monotonic()
            if done:
                break
        epoch, batch_of_epoch = epoch + 1, 0
    print(f"trained; export it with: deploy/training/train export --out {args.out}", flush=True)


def losses_compiled(network: Network):
    """`losses` with the network compiled for the one shape that batches have."""
    compiled = torch.compile(network, dynamic=False)
    head = torch.compile(lambda hidden, targets, weight: F.cross_entropy(
        F.linear(hidden, weight).float(), targets, reduction="none"), dynamic=False)  # fmt: skip

    def compute(network: Network, batch: Batch, cap: int) -> tuple[Tensor, Tensor]:
        tokens, weights, positions, turns, blocks = batch
        targets, counts = tokens[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
        hidden = compiled(tokens, positions, turns, blocks)[:, :-1].reshape(-1, network.shape.width)
        places = counts.nonzero().squeeze(1)
        if len(places) > cap:
            places = places[torch.randperm(len(places))[:cap].sort().values]
        missing = cap - len(places)
        counted = F.pad(counts[places], (0, missing))
        places = F.pad(places, (0, missing))
        return head(hidden[places], targets[places], network.embeddings.weight), counted

    return compute


def vocabulary_of(args: argparse.Namespace, makes: list) -> Vocabulary:
    """The tokens, learned once from what is said and found in the dialogues."""
    import random

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
    vocabulary = Vocabulary.load(path)
    # A round number of rows.
    assert math.gcd(len(vocabulary), 32) == 32 or len(vocabulary) < args.vocabulary, "an odd vocabulary"
    return vocabulary


if __name__ == "__main__":
    main()
