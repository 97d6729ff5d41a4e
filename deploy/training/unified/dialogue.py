"""A dialogue to train on, independent of its data set."""

from dataclasses import dataclass, field

# The sources that a plan can name, in the order of their acting tokens.
TABLE, DOCUMENTS, GRAPH = "table", "documents", "graph"
USER_PERSONA, BOT_PERSONA = "user_persona", "bot_persona"
SOURCES = (TABLE, DOCUMENTS, GRAPH, USER_PERSONA, BOT_PERSONA)


@dataclass
class Evidence:
    """One piece of evidence, and how relevant it is, in tenths from 0 to 10."""

    source: str
    text: str
    relevance: int
    # Values that a response can refer to, with their names, in the response's wording.
    values: tuple[tuple[str, str], ...] = ()
    # Whether its relevance is learned; not if it cannot be known before the response.
    is_judged: bool = True


@dataclass
class Turn:
    """The user's utterance, the sources to ask, their evidence, and the response."""

    user: str
    response: str
    # In execution order; none for NULL.
    plan: tuple[str, ...] = ()
    evidence: list[Evidence] = field(default_factory=list)
    # The weight of the response's words: small talk teaches the model to invent.
    weight: float = 1.0


Dialogue = list[Turn]
