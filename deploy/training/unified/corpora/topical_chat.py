"""Topical-Chat: open talk over articles. It is a small part, with little weight: it teaches how people
talk, but also to invent."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import DOCUMENTS, Dialogue, Evidence, Turn
from . import Make, records
from .dstc11 import overlap

_PERSONAL = "Personal Knowledge"


def _dialogue(record: dict, sentences: list[str], rng: random.Random) -> Dialogue:
    turns = []
    for user, system in zip(record["turns"][::2], record["turns"][1::2]):
        response = system["text"].strip()
        turn = Turn(user["text"].strip(), response, weight=0.3)
        if set(system["knowledge_source"]) - {_PERSONAL} and sentences:
            best = max(sentences, key=lambda sentence: overlap(sentence, response))
            if overlap(best, response) > 0.15:
                evidence = [Evidence(DOCUMENTS, best, 10)]
                other = rng.choice(sentences)
                if other != best:
                    evidence.append(Evidence(DOCUMENTS, other, min(5, round(10 * overlap(other, best)))))
                rng.shuffle(evidence)
                turn.plan, turn.evidence = (DOCUMENTS,), evidence
        turns.append(turn)
    return turns


def makers(data: Path) -> Iterator[Make]:
    for record in records(data / "topical-chat/valid_freq.jsonl.gz"):
        sets = record.get("reading_sets", {}).get("agent_1", {})
        texts = " ".join(part.get("wiki", "") for part in sets.values())
        sentences = [s for s in re.split(r"(?<=[.!?])\s+", texts) if 20 < len(s) < 240]
        yield lambda rng, record=record, sentences=sentences: _dialogue(record, sentences, rng)
