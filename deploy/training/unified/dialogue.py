"""A dialogue to train on, whatever data set it came from."""

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
    # What a response can refer to: names with their values, as the response has them.
    values: tuple[tuple[str, str], ...] = ()
    # Whether its relevance is learned; not where nobody can know it before the response.
    is_judged: bool = True


@dataclass
class Turn:
    """What the user says, which sources are asked, what they give, and the response."""

    user: str
    response: str
    # In execution order; none for NULL.
    plan: tuple[str, ...] = ()
    evidence: list[Evidence] = field(default_factory=list)
    # How much the response's words count: small talk teaches to invent.
    weight: float = 1.0


Dialogue = list[Turn]
