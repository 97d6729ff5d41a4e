"""Rows about anything: a question for one column, and a reply that points at its value; or a row that
lacks the column, and a reply that says so. Columns and things are nouns of ConceptNet, so that the
model learns to bind a value to its name."""

import gzip
import random
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..dialogue import TABLE, Dialogue, Evidence, Turn
from . import Make
from .graph import _NOTHING as NOTHING

_COLUMNS = (
    "price;status;delivery date;order number;carrier;size;colour;stock;warranty;return policy;opening hours;"
    "phone number;address;email;contact;plan;balance;due date;amount;invoice number;ticket number;priority;"
    "weight;length;brand;model;version;seat;gate;platform;departure time;arrival time;duration;distance;fee;"
    "discount;deadline;manager;owner;location;category;rating;capacity;speed;account number;limit;branch"
).split(";")
_QUESTIONS = [
    "What is the {c} of {n}?", "What's the {c} of {n}?", "Can you tell me the {c} of {n}?", "{c} of {n}?",
    "And the {c}?", "What is the {c}?", "I need the {c} for {n}.", "Do you know the {c} of {n}?",
    "Could you look up the {c} of {n}, please?",
]  # fmt: skip
_ANSWERS = [
    "The {c} of {n} is {v}.", "The {c} is {v}.", "It is {v}.", "Its {c} is {v}.", "{v}.",
    "For {n} the {c} is {v}.", "The {c} for {n} is {v}.",
]  # fmt: skip
_TWO = ["The {c} is {v}, and the {d} is {w}.", "It has a {c} of {v} and a {d} of {w}."]
_YES_NO = [("has {c}", "Does {n} have {c}?", "Yes, {n} has {c}.", "No, {n} does not have {c}."),
           ("{c} included", "Is {c} included with {n}?", "Yes, {c} is included.", "No, {c} is not included."),
           ("{c} allowed", "Is {c} allowed?", "Yes, {c} is allowed.", "No, {c} is not allowed.")]  # fmt: skip


def _value(nouns: list[str], rng: random.Random) -> str:
    number = rng.randrange
    kinds = [
        lambda: f"${number(1, 2000)}",
        lambda: f"{number(1, 13)}:{number(60):02} {rng.choice(['am', 'pm'])}",
        lambda: str(number(10, 99_999)),
        lambda: "".join(rng.choice(string.ascii_uppercase + string.digits) for _ in range(number(5, 10))),
        lambda: rng.choice(nouns).title(),
        lambda: rng.choice(["shipped", "in stock", "sold out", "pending", "open", "closed", "blue", "red", "large",
                            "medium", "small", "free", "standard", "express", "overdue", "paid", "cancelled"]),
        lambda: f"{number(2, 60)} days",
        lambda: f"{rng.choice(['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'])}",
    ]  # fmt: skip
    return rng.choice(kinds)()


def _dialogue(nouns: list[str], turns: int, rng: random.Random) -> Dialogue:
    made = []
    for _ in range(turns):
        name = rng.choice(nouns)
        name = name.title() if rng.random() < 0.5 else f"the {name}"
        columns = [
            rng.choice(_COLUMNS) if rng.random() < 0.6 else rng.choice(nouns) for _ in range(rng.randint(2, 6))
        ]
        columns = list(dict.fromkeys(columns))
        row = {column: _value(nouns, rng) for column in columns}
        form, question, yes, no = rng.choice(_YES_NO)
        switch, holds = rng.choice(nouns), rng.random() < 0.5
        pairs = [("name", name), *row.items()]
        if rng.random() < 0.5:
            pairs.insert(rng.randrange(1, len(pairs) + 1), (form.format(c=switch), "yes" if holds else "no"))
        text = ", ".join(f"{column} = {value}" for column, value in pairs)
        evidence = [Evidence(TABLE, text, 10, tuple(pairs))]
        asked = rng.random()
        column, other = rng.choice(columns), rng.choice(columns)
        if asked < 0.2 and any(value in ("yes", "no") for _, value in pairs):
            user = question.format(c=switch, n=name)
            response = (yes if holds else no).format(c=switch, n=name)
        elif asked < 0.35:
            missing = rng.choice([c for c in _COLUMNS if c not in row])
            user, response = rng.choice(_QUESTIONS).format(c=missing, n=name), rng.choice(NOTHING)
            evidence[0].relevance = 4
        elif asked < 0.5 and other != column:
            user = f"What are the {column} and the {other} of {name}?"
            response = rng.choice(_TWO).format(c=column, v=row[column], d=other, w=row[other], n=name)
        else:
            user = rng.choice(_QUESTIONS).format(c=column, n=name)
            response = rng.choice(_ANSWERS).format(c=column, v=row[column], n=name)
        if rng.random() < 0.3:
            wrong = {"name": rng.choice(nouns).title()}
            wrong |= {rng.choice(_COLUMNS): _value(nouns, rng) for _ in range(rng.randint(2, 5))}
            text = ", ".join(f"{column} = {value}" for column, value in wrong.items())
            evidence.append(Evidence(TABLE, text, 0, tuple(wrong.items())))
            rng.shuffle(evidence)
        made.append(Turn(user[0].upper() + user[1:], response[0].upper() + response[1:], (TABLE,), evidence))
    return made


def makers(data: Path) -> Iterator[Make]:
    with gzip.open(data / "conceptnet-en.tsv.gz", "rt", encoding="utf-8") as lines:
        heads = Counter(row[1] for row in (line.split("\t") for line in lines) if row[0] == "AtLocation")
    # Nouns with several facts are common words.
    nouns = sorted(head for head, facts in heads.items() if facts > 2 and 3 <= len(head) <= 24)
    order = random.Random(11)
    for _ in range(9_000):
        turns = order.randint(1, 4)
        yield lambda rng, turns=turns: _dialogue(nouns, turns, rng)
