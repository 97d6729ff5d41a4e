"""A dialogue as one append-only stream of tokens:

    <s> ([USER] utterance [PLAN] sources [EOS] ([EVIDENCE] [SOURCE] text [EOE] relevance)* [RESPONSE] wording </s>
         [RESPONSE] text </s>)*

and, for earlier turns of which only the words are needed, `[USER] utterance [RESPONSE] text </s>`.

Only a turn itself sees its plan, evidence and wording, and no piece of evidence sees another (UniMS-RAG's
evidence attention mask). A later turn sees the response as `text`, just as the engine lays out a history.
Positions are the engine's, too: a plan and the text begin after the utterance, all evidence after the plan,
which makes its relevance independent of the order, and the wording after the longest evidence.

In the wording, values of the evidence are references, `[VALUE] price [EOV]`: the model names the column, and
the engine inserts the value. So the model cannot misspell a value, nor use one without naming its column.
"""

import re
from dataclasses import dataclass, field

from .dialogue import Dialogue, Evidence, Turn
from .vocabulary import (
    END,
    EVIDENCE,
    EVIDENCE_END,
    NULL,
    PLAN,
    PLANNED,
    RESPONSE,
    START,
    USER,
    VALUE,
    VALUE_END,
    Vocabulary,
)

# The user's utterance is worth learning, but less than the response.
USER_WEIGHT = 0.25
# Relevance has one token for each piece and a plan two, while a wording has a score of tokens.
RELEVANCE_WEIGHT = 4.0
PLAN_WEIGHT = 2.0


@dataclass
class Window:
    """Tokens with their attributes; five lists of one length."""

    tokens: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    # The turn it belongs to.
    turns: list[int] = field(default_factory=list)
    # 0 for tokens that all later ones see, -1 for a plan, -2 for a wording, n for the turn's n-th evidence.
    blocks: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, tokens: list[int], weight: float, turn: int, block: int, position: int) -> int:
        """Adds tokens that begin at a position, and returns the next position."""
        count = len(tokens)
        self.tokens += tokens
        self.weights += [weight] * count
        self.positions += range(position, position + count)
        self.turns += [turn] * count
        self.blocks += [block] * count
        return position + count


class References:
    """The values that a response can refer to: by name, those of the most relevant evidence that has the name. The
    k-th reference by a name is to its k-th value, or to the last if there are fewer."""

    def __init__(self, evidence: list[Evidence]):
        self._of: dict[str, list[str]] = {}
        for one in sorted(evidence, key=lambda one: -one.relevance):
            own: dict[str, list[str]] = {}
            for name, value in one.values:
                # A response words yes and no itself.
                if value and value not in ("yes", "no"):
                    own.setdefault(name, []).append(value.lower())
            for name, values in own.items():
                self._of.setdefault(name, values)
        longest_first = sorted({value for values in self._of.values() for value in values}, key=len, reverse=True)
        pattern = r" ?(?<!\w)(" + "|".join(map(re.escape, longest_first)) + r")(?!\w)"
        self._pattern = re.compile(pattern, re.IGNORECASE) if longest_first else None

    def encode(self, text: str, vocabulary: Vocabulary) -> list[int]:
        """Returns the tokens of a text with references for values; each replaces the space before it too."""
        text = " " + text
        if self._pattern is None:
            return vocabulary.encode(text)
        tokens, at, uses = [], 0, dict.fromkeys(self._of, 0)
        for found in self._pattern.finditer(text):
            name = self._name(found.group(1).lower(), uses)
            if name is None:
                continue
            uses[name] += 1
            if found.start() > at:
                tokens += vocabulary.encode(text[at : found.start()])
            tokens += [vocabulary.control(VALUE), *vocabulary.encode(" " + name), vocabulary.control(VALUE_END)]
            at = found.end()
        return tokens + (vocabulary.encode(text[at:]) if at < len(text) else [])

    def _name(self, value: str, uses: dict[str, int]) -> str | None:
        """Returns the name by which the next reference is to this value; the least used of several."""
        names = [name for name, of in self._of.items() if of[min(uses[name], len(of) - 1)] == value]
        return min(names, key=uses.__getitem__, default=None)


class Renderer:
    """Lays dialogues out as windows of at most so many tokens. Two ablations: without the evidence attention mask a
    piece of evidence follows those before it and sees them; without relevance, none is learned (SAFARI, a planner
    and reader alone)."""

    def __init__(
        self, vocabulary: Vocabulary, length: int, history: int, *, has_mask: bool = True, has_relevance: bool = True
    ):
        self.vocabulary, self.length, self.history = vocabulary, length, history
        self.has_mask, self.has_relevance = has_mask, has_relevance

    def user(self, turn: Turn) -> list[int]:
        return [self.vocabulary.control(USER), *self.vocabulary.encode(" " + turn.user)]

    def text(self, turn: Turn) -> list[int]:
        vocabulary = self.vocabulary
        return [vocabulary.control(RESPONSE), *vocabulary.encode(" " + turn.response), vocabulary.control(END)]

    def windows(self, dialogue: Dialogue) -> list[Window]:
        """Returns a dialogue's windows; each begins with the turns before it."""
        windows: list[Window] = []
        at = 0
        while at < len(dialogue):
            window = self.begin(dialogue, at)
            fits, position = at, len(window)
            while fits < len(dialogue):
                added = Window()
                if fits > at:
                    # The response to the turn before, for later turns.
                    position = added.add(self.text(dialogue[fits - 1]), 0.0, fits, 0, position)
                position = self.turn(added, dialogue[fits], fits + 1, position)
                if len(window) + len(added) > self.length:
                    break
                for name in ("tokens", "weights", "positions", "turns", "blocks"):
                    getattr(window, name).extend(getattr(added, name))
                fits += 1
            if fits > at:
                windows.append(window)
            # A turn too long for any window is skipped.
            at = max(fits, at + 1)
        return windows

    def begin(self, dialogue: Dialogue, at: int) -> Window:
        """Returns a window before a turn: the latest turns before it that fit."""
        said: list[int] = []
        for turn in reversed(dialogue[:at]):
            exchange = self.user(turn) + self.text(turn)
            if len(exchange) + len(said) > self.history:
                break
            said = exchange + said
        window = Window()
        window.add([self.vocabulary.control(START), *said], 0.0, 0, 0, 0)
        return window

    def turn(self, window: Window, turn: Turn, number: int, position: int) -> int:
        """Adds a turn up to its wording, and returns the position of its response's text."""
        vocabulary = self.vocabulary
        control = vocabulary.control
        position = window.add(self.user(turn), USER_WEIGHT * min(turn.weight, 1.0), number, 0, position)
        plan = [vocabulary.source(source) for source in turn.plan] or [control(NULL)]
        window.add([control(PLAN)], 0.0, number, -1, position)
        planned = window.add([*plan, control(PLANNED)], PLAN_WEIGHT, number, -1, position + 1)
        after = planned
        for block, evidence in enumerate(turn.evidence, start=1):
            if self.has_mask:
                after = max(after, self._evidence(window, evidence, number, block, planned))
            else:
                after = self._evidence(window, evidence, number, 1, after)
        if turn.weight > 0:
            after = window.add([control(RESPONSE)], 0.0, number, -2, after)
            wording = References(turn.evidence).encode(turn.response, vocabulary)
            window.add([*wording, control(END)], turn.weight, number, -2, after)
        return position

    def _evidence(self, window: Window, evidence: Evidence, turn: int, block: int, at: int) -> int:
        vocabulary = self.vocabulary
        text = [
            vocabulary.control(EVIDENCE),
            vocabulary.source(evidence.source),
            *vocabulary.encode(" " + evidence.text),
            vocabulary.control(EVIDENCE_END),
        ]
        at = window.add(text, 0.0, turn, block, at)
        weight = RELEVANCE_WEIGHT if evidence.is_judged and self.has_relevance else 0.0
        return window.add([vocabulary.relevance(evidence.relevance)], weight, turn, block, at)
