"""MultiWOZ: the content of the system's acts is the evidence, as in a frame of the Schema-Guided Dialogue."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import TABLE, Dialogue, Evidence, Turn
from . import Make, records
from .wording import words

_ANSWERS = {"inform", "recommend", "select", "offerbook", "offerbooked", "book", "nooffer", "nobook"}
# Values that say nothing.
_EMPTY = {"none", "?", "do nt care", "dontcare"}


def plain(text: str) -> str:
    """Joins tokens that were separated by spaces into normal text."""
    text = re.sub(r"\s+([.,!?;:)])", r"\1", re.sub(r"\s+", " ", text))
    return re.sub(r"\b(\w+) (n't|'\w+)", r"\1\2", text).strip()


def _turn(user: str, system: dict) -> Turn:
    acts, values, answers = [], [], False
    for act, slots in (system.get("dialog_act") or {}).items():
        domain, _, kind = act.partition("-")
        answers |= kind.lower() in _ANSWERS and domain.lower() != "general"
        if kind.lower() not in _ANSWERS:
            continue
        pairs = []
        for slot, value in slots:
            if slot.lower() == "none" or value.lower() in _EMPTY:
                continue
            pairs.append(f"{words(slot)} = {value}")
            values.append((words(slot), value))
        name = f"{words(kind)} {words(domain)}"
        acts.append(f"{name}: {', '.join(pairs)}" if pairs else name)
    response = plain(system["text"])
    if not answers:
        return Turn(user, response)
    return Turn(user, response, (TABLE,), [Evidence(TABLE, "; ".join(acts), 10, tuple(values))])


def _dialogue(record: dict, _: random.Random) -> Dialogue:
    turns = record["turns"]
    return [_turn(plain(user["text"]), system) for user, system in zip(turns[::2], turns[1::2])]


def makers(data: Path) -> Iterator[Make]:
    for record in records(data / "multiwoz21/val.jsonl.gz"):
        yield lambda rng, record=record: _dialogue(record, rng)
