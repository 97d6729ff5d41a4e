"""A dialogue as one append-only stream of tokens:

    <s> ([USER] utterance [PLAN] sources [EOS] ([EVIDENCE] [SOURCE] text [EOE] relevance)* [RESPONSE] text </s>)*

and, where only what was said before is wanted, `[USER] utterance [RESPONSE] text </s>`.

What a turn planned and found is seen by that turn alone, and no evidence sees another (UniMS-RAG's
evidence attention mask), so that a later turn can be laid out from its history without either. All
evidence of a turn begins at the same position, which makes its relevance independent of the order;
the response begins behind the longest.

Names, times and amounts in evidence are placeholders, in it and in what is said from then on: to
word them is to point at them, and none can be misspelt.
"""

import random
import re
from dataclasses import dataclass, field

from .dialogue import Dialogue, Evidence, Turn
from .vocabulary import (
    END,
    EVIDENCE,
    EVIDENCE_END,
    NULL,
    PLACEHOLDERS,
    PLAN,
    PLANNED,
    RESPONSE,
    START,
    USER,
    Vocabulary,
)

# What a user says next is worth learning, but less than what is answered.
USER_WEIGHT = 0.25


@dataclass
class Window:
    """Tokens with what is known of each; five lists of one length."""

    tokens: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    # The turn it belongs to.
    turns: list[int] = field(default_factory=list)
    # 0 for what everybody behind it sees, -1 for a plan, which its turn sees, n for the turn's n-th evidence.
    blocks: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, tokens: list[int], weight: float, turn: int, block: int, position: int) -> int:
        """Adds tokens that begin at a position, and says which one is next."""
        count = len(tokens)
        self.tokens += tokens
        self.weights += [weight] * count
        self.positions += range(position, position + count)
        self.turns += [turn] * count
        self.blocks += [block] * count
        return position + count


def is_named(value: str) -> bool:
    """Whether a value is written as a placeholder: names, times, amounts; not `yes`, `2` or `cheap`."""
    return len(value) > 1 and (any(c.isupper() or c.isdigit() for c in value) or " " in value)


class Placeholders:
    """Which placeholder stands for which value, from where values were first seen."""

    def __init__(self, rng: random.Random):
        self._next = rng.randrange(PLACEHOLDERS)
        self._of: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None

    def see(self, values: tuple[str, ...]) -> None:
        for value in values:
            if is_named(value) and value.lower() not in self._of and len(self._of) < PLACEHOLDERS:
                self._of[value.lower()] = self._next
                self._next += 1
                self._pattern = None

    def encode(self, text: str, vocabulary: Vocabulary) -> list[int]:
        """The tokens of a text, with its known values as placeholders; each stands for the space
        before it too."""
        if not self._of:
            return vocabulary.encode(" " + text)
        if self._pattern is None:
            longest_first = sorted(self._of, key=len, reverse=True)
            self._pattern = re.compile(
                r" ?(?<!\w)(" + "|".join(map(re.escape, longest_first)) + r")(?!\w)", re.IGNORECASE
            )
        tokens, at = [], 0
        text = " " + text
        for found in self._pattern.finditer(text):
            if found.start() > at:
                tokens += vocabulary.encode(text[at : found.start()])
            tokens.append(vocabulary.value(self._of[found.group(1).lower()]))
            at = found.end()
        return tokens + (vocabulary.encode(text[at:]) if at < len(text) else [])


class Renderer:
    """Lays dialogues out as windows of at most so many tokens."""

    def __init__(self, vocabulary: Vocabulary, length: int, history: int):
        self.vocabulary, self.length, self.history = vocabulary, length, history

    def said(self, turn: Turn, placeholders: Placeholders) -> tuple[list[int], list[int]]:
        vocabulary = self.vocabulary
        user = [vocabulary.control(USER), *placeholders.encode(turn.user, vocabulary)]
        response = placeholders.encode(turn.response, vocabulary)
        return user, [vocabulary.control(RESPONSE), *response, vocabulary.control(END)]

    def windows(self, dialogue: Dialogue, rng: random.Random) -> list[Window]:
        """A dialogue's windows; each begins with what was said before, as plain text."""
        windows: list[Window] = []
        at = 0
        while at < len(dialogue):
            window, placeholders = self._begin(dialogue, at), Placeholders(rng)
            fits = at
            position = len(window)
            while fits < len(dialogue):
                added = Window()
                position = self._turn(added, dialogue[fits], fits + 1, position, placeholders)
                if len(window) + len(added) > self.length:
                    break
                for name in ("tokens", "weights", "positions", "turns", "blocks"):
                    getattr(window, name).extend(getattr(added, name))
                fits += 1
            if fits > at:
                windows.append(window)
            # A turn too long for any window is passed over.
            at = max(fits, at + 1)
        return windows

    def _begin(self, dialogue: Dialogue, at: int) -> Window:
        said: list[int] = []
        for turn in reversed(dialogue[:at]):
            user, response = self.said(turn, Placeholders(random.Random(0)))
            if len(user) + len(response) + len(said) > self.history:
                break
            said = user + response + said
        window = Window()
        window.add([self.vocabulary.control(START), *said], 0.0, 0, 0, 0)
        return window

    def _turn(
        self, window: Window, turn: Turn, number: int, position: int, placeholders: Placeholders
    ) -> int:
        vocabulary = self.vocabulary
        control = vocabulary.control
        # The user has not seen this turn's evidence.
        user = [control(USER), *placeholders.encode(turn.user, vocabulary)]
        position = window.add(user, USER_WEIGHT * min(turn.weight, 1.0), number, 0, position)
        plan = [vocabulary.source(source) for source in turn.plan] or [control(NULL)]
        window.add([control(PLAN)], 0.0, number, -1, position)
        position = window.add([*plan, control(PLANNED)], 1.0, number, -1, position + 1)
        for evidence in turn.evidence:
            placeholders.see(evidence.values)
        after = position
        for block, evidence in enumerate(turn.evidence, start=1):
            after = max(after, self._evidence(window, evidence, number, block, position, placeholders))
        _, response = self.said(turn, placeholders)
        after = window.add(response[:1], 0.0, number, 0, after)
        return window.add(response[1:], turn.weight, number, 0, after)

    def _evidence(
        self, window: Window, evidence: Evidence, turn: int, block: int, at: int, placeholders: Placeholders
    ) -> int:
        vocabulary = self.vocabulary
        text = [
            vocabulary.control(EVIDENCE),
            vocabulary.source(evidence.source),
            *placeholders.encode(evidence.text, vocabulary),
            vocabulary.control(EVIDENCE_END),
        ]
        at = window.add(text, 0.0, turn, block, at)
        return window.add([vocabulary.relevance(evidence.relevance)], 1.0, turn, block, at)
