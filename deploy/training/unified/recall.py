"""Measures recall@1 on KBP by a model's relevance, in PyTorch: for the ablation without the evidence attention mask,
which the engine does not run. For each reply that used evidence, ranks the persona's sentences and, if the reply used
the knowledge behind one, the knowledge behind the right sentence.

`python -m unified.recall --data DATA --out OUT [--without mask]` reads OUT's checkpoint.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import torch

from .corpora import records
from .dialogue import BOT_PERSONA, DOCUMENTS, Dialogue, Evidence, Turn
from .export import trained
from .network import Network
from .stream import Renderer, Window
from .vocabulary import Vocabulary


def questions(data: Path) -> Iterator[tuple[Dialogue, tuple[str, ...], str, dict[str, str], list[str]]]:
    """Yields the dialogue up to a reply, the plan, the source, its candidates by key, and the used ones."""
    for record in records(data / "kbp/dev.jsonl.gz"):
        joined = lambda texts: {key: text.replace(" ", "") for key, text in texts.items()}  # noqa: E731
        persona = joined(record["persona"])
        said: Dialogue = []
        for exchange in record["conversation"]:
            turn = Turn(exchange["U"].replace(" ", ""), exchange["S"].replace(" ", ""))
            used = exchange["P-K"]
            plan = (BOT_PERSONA, DOCUMENTS)[: len(used)]
            if used:
                yield [*said, turn], plan, BOT_PERSONA, persona, used[0]
            if len(used) > 1:
                of = {key.split("-")[0] for key in used[1]}
                behind = {
                    f"{key}-{name}": text
                    for key in of
                    for name, text in joined(record["persona_kg"].get(key, {})).items()
                }
                yield [*said, turn], plan, DOCUMENTS, behind, used[1]
            said.append(turn)


@torch.no_grad()
def scores(
    network: Network, renderer: Renderer, dialogue: Dialogue, plan: tuple[str, ...], evidence: list[Evidence]
) -> list[float]:
    """Returns the mean of the evaluation tokens for each piece. Without the mask a piece sees the pieces before it and
    their scores."""
    first = renderer.vocabulary.relevance(0)
    *said, last = dialogue
    found: list[float] = []
    while len(found) < len(evidence):
        # With the mask all pieces are read together.
        count = len(evidence) if renderer.has_mask else len(found) + 1
        turn = Turn(last.user, "", plan, evidence[:count], weight=0.0)
        window = renderer.begin([*said, turn], len(said))
        renderer.turn(window, turn, 1, len(window))
        logits = network.logits(network(*_tensors(window)))[0]
        ends = [at for at, token in enumerate(window.tokens) if first <= token < first + 11]
        for at in ends[-(count - len(found)) :]:
            shares = logits[at - 1, first : first + 11].float().softmax(0)
            found.append((shares * torch.arange(11)).sum().item() / 10)
            evidence[len(found) - 1].relevance = round(10 * found[-1])
    return found


def _tensors(window: Window) -> Iterator[torch.Tensor]:
    return (torch.tensor(of)[None] for of in (window.tokens, window.positions, window.turns, window.blocks))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m unified.recall", description="Recall@1 on KBP's development split.")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="the folder that was trained into")
    parser.add_argument("--without", choices=("mask",), help="how it was trained")
    parser.add_argument("--history", type=int, default=128, help="tokens of earlier turns")
    parser.add_argument("--seed", type=int, default=0, help="draws the order of the candidates")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    network, vocabulary = trained(args.out)
    renderer = Renderer(vocabulary, 1 << 20, args.history, has_mask=args.without != "mask")
    right: dict[str, list[bool]] = {}
    for dialogue, plan, source, candidates, used in questions(args.data):
        keys = rng.sample(list(candidates), len(candidates))
        evidence = [Evidence(source, candidates[key], 0) for key in keys]
        found = scores(network, renderer, dialogue, plan, evidence)
        alone = "persona" if len(plan) == 1 else "both: persona"
        name = "both: documents behind the right sentence" if source == DOCUMENTS else alone
        right.setdefault(name, []).append(keys[found.index(max(found))] in used)
    for name, of in sorted(right.items()):
        print(f"{name}: {sum(of) / len(of):.3f} of {len(of)}")


if __name__ == "__main__":
    main()
