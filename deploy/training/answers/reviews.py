"""Reads DSTC11 track 5 for the bi-encoder: questions about hotels and restaurants, and the sentences of reviews and the
answered questions that answer them. Each entity is one company, and each of its snippets a section of its own."""

import gzip
import json
from pathlib import Path

from .companies import Company, Section, Turn


def snippets(entity: dict) -> list[Section]:
    found, title = [], entity["name"].title()
    for review, of in entity["reviews"].items():
        found += [Section(f"review-{review}-{at}", title, [text]) for at, text in of["sentences"].items()]
    for faq, of in entity["faqs"].items():
        found.append(Section(f"faq-{faq}", title, [f"{of['question']} {of['answer']}"]))
    return found


def place(gold: dict) -> str:
    faq = gold["doc_type"] == "faq"
    return f"faq-{gold['doc_id']}" if faq else f"review-{gold['doc_id']}-{gold['sent_id']}"


def entities(folder: Path) -> list[Company]:
    """Returns the entities that the training split asks about. A turn is the last utterance of its
    dialogue; all snippets that answer it are its places."""
    with gzip.open(folder / "knowledge.json.gz") as file:
        known = {
            (domain, id): Company(f"{domain}-{id}", snippets(entity))
            for domain, of in json.load(file).items()
            for id, entity in of.items()
        }
    with gzip.open(folder / "train.jsonl.gz") as file:
        for number, line in enumerate(file):
            asked, of = json.loads(line), {}
            for gold in asked.get("knowledge", []):
                of.setdefault((gold["domain"], str(gold["entity_id"])), []).append(place(gold))
            for entity, places in of.items():
                turn = Turn(f"{number}", "document", asked["turns"][-1]["text"], [], places, [])
                known[entity].turns.append(turn)
    return [it for it in known.values() if it.turns]
