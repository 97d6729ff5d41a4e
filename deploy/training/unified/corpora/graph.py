"""ConceptNet and WordNet as questions that a fact answers, or that no found fact answers: teaches to copy
from evidence, and to say that nothing was found. Questions and answers are ours."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import DOCUMENTS, GRAPH, Dialogue, Evidence, Turn
from . import Make

# By relation: the fact in words, questions, and answers.
_WORDED = {
    "IsA": ("{h} is a kind of {t}", ["What is {h}?", "What kind of thing is {h}?"], ["{h} is a kind of {t}."]),
    "UsedFor": ("{h} is used for {t}", ["What is {h} used for?", "What can I do with {h}?"],
                ["{h} is used for {t}.", "You can use {h} for {t}."]),
    "AtLocation": ("{h} can be found at {t}", ["Where can I find {h}?", "Where would {h} be?"],
                   ["You can find {h} at {t}.", "Try {t}."]),
    "HasA": ("{h} has {t}", ["What does {h} have?"], ["{h} has {t}."]),
    "PartOf": ("{h} is part of {t}", ["What is {h} part of?"], ["{h} is part of {t}."]),
    "HasProperty": ("{h} is {t}", ["What is {h} like?"], ["{h} is {t}.", "It is {t}."]),
    "CapableOf": ("{h} can {t}", ["What can {h} do?"], ["{h} can {t}."]),
    "Causes": ("{h} causes {t}", ["What does {h} cause?", "What happens after {h}?"], ["{h} causes {t}."]),
    "HasPrerequisite": ("before {h} one has to {t}", ["What do I need for {h}?"], ["First you have to {t}."]),
    "MadeOf": ("{h} is made of {t}", ["What is {h} made of?"], ["{h} is made of {t}."]),
    "DefinedAs": ("{h}: {t}", ["What does {h} mean?", "Can you explain {h}?", "Tell me about {h}."],
                  ["{h} means {t}.", "It is {t}."]),
}  # fmt: skip
_OPENINGS = ["", "", "Hi, ", "Hello. ", "Can you tell me: ", "I was wondering. ", "One more thing. "]
_NOTHING = [
    "I could not find that.",
    "I'm sorry, I have nothing on that.",
    "I don't have that information.",
    "I found nothing about that, sorry.",
    "Sorry, what I found does not answer that.",
]


def _facts(path: Path) -> list[tuple[str, str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        return [
            (row[0], row[1], row[2])
            for row in rows
            if row[0] in _WORDED and not row[3].startswith("-") and len(row[2]) < 160
        ]


def _dialogue(facts: list, at: int, turns: int, rng: random.Random) -> Dialogue:
    made = []
    for _ in range(turns):
        relation, head, tail = facts[at]
        text, questions, answers = _WORDED[relation]
        source = DOCUMENTS if relation == "DefinedAs" else GRAPH
        user = rng.choice(_OPENINGS) + rng.choice(questions).format(h=head)
        right = Evidence(source, text.format(h=head, t=tail), 10)
        others = []
        for _ in range(rng.randint(0, 3)):
            other_relation, other_head, other_tail = facts[rng.randrange(len(facts))]
            same = rng.random() < 0.5
            wrong = _WORDED[other_relation][0].format(h=head if same else other_head, t=other_tail)
            # A fact about the same thing that does not answer.
            if not same or other_relation != relation:
                others.append(Evidence(source, wrong, 2 if same else 0))
        if others and rng.random() < 0.2:
            made.append(Turn(user, rng.choice(_NOTHING), (source,), others))
        else:
            evidence = [right, *others]
            rng.shuffle(evidence)
            answer = rng.choice(answers).format(h=head, t=tail)
            made.append(Turn(user, answer[0].upper() + answer[1:], (source,), evidence))
        at = rng.randrange(len(facts))
    return made


def makers(data: Path) -> Iterator[Make]:
    facts = _facts(data / "conceptnet-en.tsv.gz") + _facts(data / "wordnet-en.tsv.gz")
    order = random.Random(7)
    for at in order.sample(range(len(facts)), 16_000):
        yield lambda rng, at=at: _dialogue(facts, at, rng.randint(1, 3), rng)
