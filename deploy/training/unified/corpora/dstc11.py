"""DSTC11 track 5: a last user turn that reviews and answered questions can answer, or not."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import DOCUMENTS, Dialogue, Evidence, Turn
from . import Make, records


class _Knowledge:
    """Reviews and answered questions, by entity."""

    def __init__(self, data: Path):
        with gzip.open(data / "dstc11-track5/knowledge.json.gz", "rt", encoding="utf-8") as file:
            self.domains = json.load(file)
        self.snippets: list[tuple[str, str, str]] = []
        self.of: dict[tuple[str, str], list[str]] = {}
        for domain, entities in self.domains.items():
            for entity, about in entities.items():
                texts = [
                    sentence
                    for review in (about.get("reviews") or {}).values()
                    for sentence in review["sentences"].values()
                ]
                texts += [f"{faq['question']} {faq['answer']}" for faq in (about.get("faqs") or {}).values()]
                self.of[domain, entity] = texts
                self.snippets += [(domain, entity, text) for text in texts]

    def name(self, domain: str, entity: str) -> str:
        return self.domains[domain][entity]["name"].title()

    def text(self, found: dict) -> str:
        about = self.domains[found["domain"]][str(found["entity_id"])]
        if found["doc_type"] == "faq":
            faq = about["faqs"][str(found["doc_id"])]
            return f"{faq['question']} {faq['answer']}"
        return about["reviews"][str(found["doc_id"])]["sentences"][str(found["sent_id"])]

    def evidence(self, domain: str, entity: str, text: str, relevance: int) -> Evidence:
        name = self.name(domain, entity)
        return Evidence(DOCUMENTS, f"{name}: {text}", relevance, (("name", name),))


def overlap(a: str, b: str) -> float:
    """Returns the share of words that two texts have in common, 0 to 1."""
    a_words, b_words = set(a.lower().split()), set(b.lower().split())
    return len(a_words & b_words) / max(1, len(a_words | b_words))


def _dialogue(record: dict, knowledge: _Knowledge, rng: random.Random) -> Dialogue:
    turns, said = [], [turn["text"] for turn in record["turns"]]
    # The last speaker is the user; before that, the two alternate.
    if len(said) % 2 == 0:
        said = said[1:]
    for user, system in zip(said[::2], said[1::2]):
        # The evidence of these turns is not labelled: they are history, with the weight of small talk.
        turns.append(Turn(user, system, weight=0.3))
    if not record["target"]:
        # The reply is not in the data: the model learns only that no source is asked.
        turns.append(Turn(said[-1], "", weight=0.0))
        return turns
    gold = [(str(found["entity_id"]), found["domain"], knowledge.text(found)) for found in record["knowledge"]]
    chosen = rng.sample(gold, min(len(gold), rng.randint(1, 4)))
    # The response rests on all of them, and has its full weight only if all are there.
    evidence = [knowledge.evidence(domain, entity, text, 10) for entity, domain, text in chosen]
    entity, domain, about = chosen[0]
    texts = {text for _, _, text in gold}
    same = [text for text in knowledge.of[domain, entity] if text not in texts]
    for text in rng.sample(same, min(len(same), rng.randint(0, 2))):
        evidence.append(knowledge.evidence(domain, entity, text, min(5, round(10 * overlap(text, about)))))
    if rng.random() < 0.7:
        other, where, text = rng.choice(knowledge.snippets)
        if (other, where) != (domain, entity):
            evidence.append(knowledge.evidence(other, where, text, 0))
    rng.shuffle(evidence)
    whole = len(chosen) == len(gold)
    turns.append(Turn(said[-1], record["response"], (DOCUMENTS,), evidence, 1.0 if whole else 0.5))
    return turns


def makers(data: Path, split: str = "train") -> Iterator[Make]:
    knowledge = _Knowledge(data)
    for record in records(data / f"dstc11-track5/{split}.jsonl.gz"):
        yield lambda rng, record=record: _dialogue(record, knowledge, rng)
