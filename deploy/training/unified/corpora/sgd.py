"""Schema-Guided Dialogue: the evidence of a turn is a frame of the system's actions, or a row of the
service's answer, beside rows that answer something else."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..dialogue import TABLE, Dialogue, Evidence, Turn
from . import Make, records
from .wording import surface, words

# Actions with an answer of the service.
_ANSWERS = {"OFFER", "INFORM", "INFORM_COUNT", "NOTIFY_SUCCESS", "NOTIFY_FAILURE"}
# The share of turns whose evidence is a frame, and not a row.
_FRAMES = 0.6
# The share of slots with words of their description in place of their name, so that names can be new.
_RENAMED = 0.15
# The share of rows without the actions before them, as in the engine.
_BARE = 0.6
# The share of unfit evidence that is of the same service.
_SAME_SERVICE = 0.5


class _Names:
    """The names of slots in one dialogue."""

    def __init__(self, descriptions: dict[str, str], rng: random.Random):
        self._descriptions, self._rng = descriptions, rng
        self._of: dict[str, str] = {}

    def of(self, slot: str) -> str:
        if slot not in self._of:
            name = words(slot)
            described = self._descriptions.get(slot)
            if described and self._rng.random() < _RENAMED:
                name = described
            self._of[slot] = name
        return self._of[slot]


def _descriptions(data: Path) -> dict[str, dict[str, str]]:
    """Returns the first words of each slot's description, by service."""
    services = json.loads((data / "sgd/train.schema.json").read_text())
    of: dict[str, dict[str, str]] = {}
    for service in services:
        slots = of.setdefault(service["service_name"], {})
        for slot in service["slots"]:
            first = slot["description"].lower().split(",")[0].split("(")[0].split(" of the ")[0].split()
            if 0 < len(first) <= 5:
                slots[slot["name"]] = " ".join(first)
    return of


Values = tuple[tuple[str, str], ...]


def frame_text(actions: list, name) -> tuple[str, Values]:
    """Returns a frame of actions as text, `offer: airline = Delta, price = $469; inform count: count = 3`, and its
    values."""
    acts: dict[str, list[str]] = {}
    seen: list[tuple[str, str]] = []
    for act, slot, values in actions:
        pairs = acts.setdefault(words(act), [])
        if not slot or act in ("OFFER_INTENT", "REQUEST"):
            continue
        if not values:
            pairs.append(name(slot))
        for value in values:
            value = surface(value) if value in ("True", "False") else value
            pairs.append(f"{name(slot)} = {value}")
            seen.append((name(slot), value))
    said = [f"{act}: {', '.join(pairs)}" if pairs else act for act, pairs in acts.items()]
    return "; ".join(said), tuple(seen)


def row_text(row: dict, said: dict[str, str], name) -> tuple[str, Values]:
    """Returns a row as text, and its values in the response's wording if the response has them."""
    text = ", ".join(f"{name(slot)} = {surface(value)}" for slot, value in row.items())
    return text, tuple((name(slot), said.get(slot) or surface(value)) for slot, value in row.items())


@dataclass
class _Elsewhere:
    """Answers to other questions, from all dialogues: the model would learn a small set by heart."""

    pieces: list[tuple[str, Values]] = field(default_factory=list)
    # By service.
    rows: dict[str, list[dict]] = field(default_factory=dict)

    def drawn(self, service: str, wanted: dict[str, list[str]], rng: random.Random) -> tuple[str, Values]:
        """Draws a row of the same service that is not what the user wants, or any piece."""
        if service in self.rows and rng.random() < _SAME_SERVICE:
            for row in rng.sample(self.rows[service], min(8, len(self.rows[service]))):
                if _contradicts(row, wanted):
                    return row_text(row, {}, words)
        return rng.choice(self.pieces)


def _contradicts(row: dict, wanted: dict[str, list[str]]) -> bool:
    """Whether a row has another value than the user asked for."""
    both = [(str(row[slot]).lower(), [value.lower() for value in values]) for slot, values in wanted.items() if slot in row]
    return any(value not in values for value, values in both if "dontcare" not in values)


def _turn(user: dict, system: dict, names: _Names, elsewhere: _Elsewhere, rng: random.Random) -> Turn:
    frame = system["frames"][0]
    actions = frame["actions"]
    asked, response = user["utterance"], system["utterance"]
    if not (frame.get("service_call") or any(act in _ANSWERS for act, _, _ in actions)):
        return Turn(asked, response)
    results = [row for of in system["frames"] for row in of.get("service_results", [])]
    said = {slot: values[0] for act, slot, values in actions if values and slot}
    fits = [row for row in results if _agrees(row, said)]
    turn = Turn(asked, response, (TABLE,))
    before = ""
    if fits and rng.random() > _FRAMES:
        text, values = row_text(fits[0], said, names.of)
        done = [words(act) for act, _, _ in actions if act.startswith("NOTIFY")]
        counts = tuple(("count", values[0]) for act, _, values in actions if act == "INFORM_COUNT" and values)
        # The service's actions and the number of its results precede each of its rows.
        before = "".join([*(f"{act}; " for act in done), *(f"{name} = {count}, " for name, count in counts)])
        if before and rng.random() < _BARE:
            # The response cannot be worded from a row alone, but the row's relevance is learned.
            before, turn.weight = "", 0.0
        turn.evidence.append(Evidence(TABLE, before + text, 10, counts + values))
        others = [row for row in results if row is not fits[0]]
        if others and rng.random() < 0.7:
            text, values = row_text(rng.choice(others), {}, names.of)
            # Only the response determines which of the rows it is about.
            turn.evidence.append(Evidence(TABLE, before + text, 3, values, is_judged=False))
    else:
        text, values = frame_text(actions, names.of)
        turn.evidence.append(Evidence(TABLE, text, 10, values))
    if rng.random() < 0.8:
        wanted = {
            slot: values
            for of in user["frames"]
            if of["service"] == frame["service"]
            for slot, values in of.get("state", {}).get("values", {}).items()
        }
        text, values = elsewhere.drawn(frame["service"], wanted, rng)
        turn.evidence.append(Evidence(TABLE, before + text, 0, values))
    rng.shuffle(turn.evidence)
    return turn


def _agrees(row: dict, said: dict[str, str]) -> bool:
    """Whether the response can be about this row."""
    both = [(surface(str(row[slot])).lower(), said[slot].lower()) for slot in said if slot in row]
    return any(a == b for a, b in both)


def _dialogue(record: dict, descriptions: dict, elsewhere: _Elsewhere, rng: random.Random) -> Dialogue:
    known = {slot: name for service in record["services"] for slot, name in descriptions.get(service, {}).items()}
    names = _Names(known, rng)
    turns = zip(record["turns"][::2], record["turns"][1::2])
    return [_turn(user, system, names, elsewhere, rng) for user, system in turns]


def makers(data: Path, split: str = "train") -> Iterator[Make]:
    descriptions = _descriptions(data)
    elsewhere = _Elsewhere()
    for record in records(data / f"sgd/{split}.jsonl.gz"):
        yield lambda rng, record=record: _dialogue(record, descriptions, elsewhere, rng)
        for turn in record["turns"][1::2]:
            frame = turn["frames"][0]
            text, values = frame_text(frame["actions"], words)
            # A frame without values could be right for any turn.
            if values and any(act in _ANSWERS for act, _, _ in frame["actions"]):
                elsewhere.pieces.append((text, values))
            for row in frame.get("service_results", [])[:1]:
                elsewhere.pieces.append(row_text(row, {}, words))
                elsewhere.rows.setdefault(frame["service"], []).append(row)
