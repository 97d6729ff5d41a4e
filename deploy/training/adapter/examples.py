"""Reads labelled prompts, and turns prompts into tokens as the engine does.

A folder of examples has `examples.jsonl`, one `{"prompt": ..., "utterance": ..., "earlier": ..., "answer": "True",
"held_out": false}` a line, and `gate.json`, which says what the prompts ask and names the two answers, the positive one
first. A prompt ends where its answer begins: the answer is appended after a space. An encoder reads the utterance and what
was said earlier instead."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from . import Refused

# How prompts end.
END = "### Response:"


@dataclass(frozen=True)
class Example:
    prompt: str
    utterance: str
    earlier: str
    is_positive: bool
    is_held_out: bool


def json_of(path: Path, remedy: str) -> dict:
    """Reads a JSON object.

    Raises Refused, with the remedy, if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}; {remedy}") from error
    if not isinstance(found, dict):
        raise Refused(f"{path}: it holds no JSON object; {remedy}")
    return found


def gate_of(folder: Path) -> dict:
    """Reads `gate.json` of a folder of examples or of an adapter."""
    gate = json_of(folder / "gate.json", "give a folder of examples, or an adapter of `train adapter fit`")
    answers = gate.get("answers")
    if not isinstance(answers, list) or len(answers) != 2 or not all(isinstance(it, str) for it in answers):
        raise Refused(f'{folder / "gate.json"}: "answers" is {answers!r}; name two, such as ["True", "False"]')
    return gate


def lines_of(path: Path, remedy: str) -> list[dict]:
    """Reads a file with a JSON object with a text "prompt" in each line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}; {remedy}") from error
    found = []
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
        except ValueError as error:
            raise Refused(f"{path}, line {at}: {error}; {remedy}") from error
        if not isinstance(one, dict) or not isinstance(one.get("prompt"), str):
            raise Refused(f'{path}, line {at}: there is no text "prompt"; {remedy}')
        found.append(one)
    return found


def examples_of(folder: Path, answers: list[str]) -> list[Example]:
    """Reads `examples.jsonl`: some to train on with either answer, and some held out."""
    path = folder / "examples.jsonl"
    remedy = "let the engine write the examples again"
    found = []
    for at, one in enumerate(lines_of(path, remedy), 1):
        if one.get("answer") not in answers or not isinstance(one.get("held_out"), bool):
            raise Refused(f'{path}, example {at}: "answer" has to be one of {answers} and "held_out" a bool; {remedy}')
        texts = [one.get(name) for name in ("prompt", "utterance", "earlier")]
        if not all(isinstance(text, str) for text in texts):
            raise Refused(f'{path}, example {at}: "utterance" and "earlier" have to be texts; {remedy}')
        found.append(Example(*texts, one["answer"] == answers[0], one["held_out"]))
    trained = {it.is_positive for it in found if not it.is_held_out}
    if len(trained) < 2 or not any(it.is_held_out for it in found):
        raise Refused(
            f"{path}: an adapter needs examples of both answers to learn from, and others that are held out, to choose "
            "the threshold by; write them from more conversations"
        )
    return found


def fingerprint(path: Path) -> str:
    """Returns the beginning of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class Prompts:
    """Turns prompts into tokens with the tokenizer of a folder. What people wrote stays text even if it spells a control
    token, as in the engine."""

    def __init__(self, base: Path):
        self.path = base / "tokenizer.json"
        described = json_of(self.path, "put the tokenizer of the model into its folder")
        # The engine's rule for what is a control token (`DecoderVocabulary`): special ones, and all with a letter.
        for added in described.get("added_tokens", []):
            added["special"] |= any(not letter.isspace() and letter != "\u2581" for letter in added["content"])
        self._tokenizer = Tokenizer.from_str(json.dumps(described))
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, prompt: str) -> list[int]:
        """Returns the tokens, after those that the tokenizer itself begins every text with."""
        return self._tokenizer.encode(prompt).ids

    def answers(self, names: list[str]) -> list[int]:
        """Returns the first token of each answer.

        Raises Refused if they are the same token, or if the tokens of a prompt change when an answer follows."""
        before = self.encode(END)
        first = []
        for name in names:
            after = self.encode(f"{END} {name}")
            if after[: len(before)] != before or len(after) == len(before):
                raise Refused(
                    f"{self.path}: {END!r} has other tokens when {name!r} follows, so no token is the answer's first; "
                    "give a base whose tokenizer adds nothing behind a text and cuts it at spaces"
                )
            first.append(after[len(before)])
        if first[0] == first[1]:
            token = self._tokenizer.id_to_token(first[0])
            raise Refused(
                f"{self.path}: {names[0]!r} and {names[1]!r} both begin with the token {token!r}, so their probabilities "
                "cannot be told apart; give another base"
            )
        return first
