"""The model's tokens: byte pairs learned from the training text, every digit alone, and control
tokens for sources, relevance, evidence and references. Text never becomes a control token."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .dialogue import SOURCES

START, END, PAD = "<s>", "</s>", "<pad>"
USER, PLAN, PLANNED, NULL = "[USER]", "[PLAN]", "[EOS]", "[NULL]"
EVIDENCE, EVIDENCE_END, RESPONSE = "[EVIDENCE]", "[EOE]", "[RESPONSE]"
VALUE, VALUE_END = "[VALUE]", "[EOV]"

_SPECIAL = [
    PAD, START, END, USER, PLAN, PLANNED, NULL, EVIDENCE, EVIDENCE_END, RESPONSE, VALUE, VALUE_END,
    *(f"[{source.upper()}]" for source in SOURCES),
    *(f"[RELEVANCE_{tenth / 10:.1f}]" for tenth in range(11)),
]  # fmt: skip


def special_tokens() -> list[str]:
    """Returns the control tokens in the order of their numbers."""
    return list(_SPECIAL)


class Vocabulary:
    """Turns texts into tokens, and names into control tokens."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        # A user's words stay text, even if they spell a control token.
        self.tokenizer.encode_special_tokens = True
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """Learns byte pairs until there are `size` tokens."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        special = [AddedToken(token, special=True, normalized=False) for token in _SPECIAL]
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        return cls(Tokenizer.from_file(str(path)))

    def save(self, path: Path) -> None:
        self.tokenizer.save(str(path))

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def control(self, name: str) -> int:
        """Returns the number of a control token."""
        return _SPECIAL.index(name)

    def source(self, name: str) -> int:
        return self.control(f"[{name.upper()}]")

    def relevance(self, tenths: int) -> int:
        return self.control(f"[RELEVANCE_{tenths / 10:.1f}]")

    def encode(self, text: str) -> list[int]:
        found = self._cache.get(text)
        if found is None:
            found = self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(self._cache) < 400_000:
                self._cache[text] = found
        return found
