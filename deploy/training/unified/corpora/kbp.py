"""Knowledge Behind Persona (Chinese): NULL, persona, or persona and then the knowledge behind it. Its
licence is not stated: models made from it are for measurement and are not shipped."""

import random
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import BOT_PERSONA, DOCUMENTS, Dialogue, Evidence, Turn
from . import Make, records


def _join(text: str) -> str:
    return text.replace(" ", "")


# For each reply of a dialogue, the relevance of evidence in tenths.
Labels = dict[tuple[str, int], dict[str, int]]


def _labels(path: Path) -> Labels:
    labels: Labels = {}
    for record in records(path):
        labels.setdefault((record["dialogue"], record["turn"]), {}).update(record["relevance"])
    return labels


def _dialogue(record: dict, labels: Labels, rng: random.Random) -> Dialogue:
    persona = {key: _join(text) for key, text in record["persona"].items()}
    known = {
        f"{key}-{name}": _join(text)
        for key, texts in record["persona_kg"].items()
        for name, text in texts.items()
    }
    turns = []
    for at, said in enumerate(record["conversation"]):
        soft = labels.get((record["id"], at), {})
        turn = Turn(_join(said["U"]), _join(said["S"]))
        chosen = said["P-K"]
        if chosen:
            turn.plan = (BOT_PERSONA, DOCUMENTS)[: len(chosen)]
            turn.evidence += _sample(persona, chosen[0], BOT_PERSONA, soft, rng)
        if len(chosen) > 1:
            turn.evidence += _sample(known, chosen[1], DOCUMENTS, soft, rng)
        turns.append(turn)
    return turns


def _sample(
    texts: dict[str, str], gold: list[str], source: str, soft: dict[str, int], rng: random.Random
) -> list[Evidence]:
    """Returns the right pieces and up to two others of the source, in random order, with the relevance of the labels;
    without labels, 10 or 0."""
    others = [key for key in texts if key not in gold]
    chosen = [key for key in gold if key in texts] + rng.sample(others, min(len(others), rng.randint(0, 2)))
    rng.shuffle(chosen)
    return [Evidence(source, texts[key], soft.get(key, 10 if key in gold else 0)) for key in chosen]


def makers(data: Path, split: str = "train", labels: Path | None = None) -> Iterator[Make]:
    soft = _labels(labels) if labels else {}
    for record in records(data / f"kbp/{split}.jsonl.gz"):
        yield lambda rng, record=record: _dialogue(record, soft, rng)
