"""Reads companies for training and measurement: sections of pages, rows of tables, and customers' turns."""

import argparse
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

# The purposes of a turn; `question` is one that the knowledge may answer.
INTENTS = ("question", "smalltalk", "handoff", "complaint", "safety")


@dataclass
class Section:
    """A unit of retrieval: a section of a page, or a row of a table."""

    place: str  # docs/page.md#slug, or row:ID
    title: str
    sentences: list[str]

    @property
    def text(self) -> str:
        return " ".join([self.title, *self.sentences])


@dataclass
class Turn:
    id: str
    kind: str
    text: str
    history: list[dict]
    gold: list[str]
    answer: list[str]

    @property
    def intent(self) -> str:
        return self.kind if self.kind in INTENTS else "question"

    @property
    def before(self) -> list[str]:
        """The last turns of the customer and of the company, without which a follow-up cannot be understood."""
        last = {it["speaker"]: it["text"] for it in self.history}
        return [last[speaker] for speaker in ("user", "system") if speaker in last]


@dataclass
class Company:
    name: str
    sections: list[Section]
    turns: list[Turn] = field(default_factory=list)

    @property
    def language(self) -> str:
        return "zh" if self.name.startswith("zh-") else "en"


def slug(heading: str) -> str:
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()).strip())


def plain(text: str) -> str:
    return " ".join(re.sub(r"[*_`|]", " ", text).split())


def sentences(text: str) -> list[str]:
    """Returns sentences, list items and table rows without mark-up, and without headers of tables."""
    found = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        line = line.strip()
        if not line or set(line) <= set("|-: "):
            continue
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if line.startswith("|") and below and set(below) <= set("|-: ") and "-" in below:
            continue
        if line.startswith("|"):
            cells = [plain(cell) for cell in line.strip("|").split("|")]
            found.append(" | ".join(cells))
        elif re.match(r"([-*+]|\d+[.)])\s+", line):
            found.append(plain(re.sub(r"^([-*+]|\d+[.)])\s+", "", line)))
        else:
            ended = re.split(r"(?<=[.!?])\s+(?=[^\sa-z])|(?<=[。！？])", plain(line))
            found += [part.strip() for part in ended if part.strip()]
    return found


def pages(folder: Path) -> list[Section]:
    found = []
    for page in sorted((folder / "docs").glob("*.md")):
        title, heading, body = "", None, []

        def close():
            if heading is not None and any(line.strip() for line in body):
                said = sentences("\n".join(body))
                place = f"docs/{page.name}#{slug(heading)}"
                whole = heading if heading == title or not title else f"{title}: {heading}"
                found.append(Section(place, whole, said))

        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"(#{1,4}) (.*)", line):
                close()
                heading, body = match[2].strip(), []
                if len(match[1]) == 1:
                    title = heading
            else:
                body.append(line)
        close()
    return found


def rows(folder: Path) -> list[Section]:
    found = []
    table = folder / "table.jsonl"
    if not table.exists():
        return found
    for line in table.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        id = str(row.get("id") or row.get("编号"))
        name = str(row.get("name") or row.get("名称") or id)
        cells = [f"{key.replace('_', ' ')}: {said(value)}" for key, value in row.items()]
        found.append(Section(f"row:{id}", name, cells))
    return found


def said(value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def company(folder: Path) -> Company:
    turns = []
    labelled = folder / "turns.jsonl"
    if labelled.exists():
        for line in labelled.read_text(encoding="utf-8").splitlines():
            turn = json.loads(line)
            turns.append(
                Turn(turn["id"], turn["kind"], turn["text"], turn["history"], turn["gold"], turn["answer"])
            )
    return Company(folder.name, pages(folder) + rows(folder), turns)


def answers(turn: Turn, section: Section) -> list[int]:
    """Returns the sentences of a section that answer, or all of them if the label names none word for word."""
    if section.place not in turn.gold:
        return []
    said = [plain(it) for it in turn.answer]
    columns = [it.replace("_", " ") + ":" for it in turn.answer]
    cells = lambda text: " ".join(text.replace("|", " ").split())
    found = [
        at
        for at, sentence in enumerate(section.sentences)
        if any(it in cells(sentence) or cells(sentence) in it for it in said)
        or any(sentence.startswith(column) for column in columns)
    ]
    return found or (list(range(len(section.sentences))) if len(turn.gold) == 1 else [])


def companies(folder: Path) -> list[Company]:
    return [company(path) for path in sorted(folder.iterdir()) if (path / "docs").is_dir()]


def options(parser: argparse.ArgumentParser):
    """Adds the options that name companies for training and for measurement."""
    parser.add_argument("--companies", type=Path, required=True, help="companies to train on")
    parser.add_argument("--held", type=Path, nargs="*", default=[], help="folders of companies to measure on")
    parser.add_argument("--leave-out", default="", help="companies that are not trained on, with commas between")
    parser.add_argument("--languages", default="en", help="languages of the companies that are trained on, such as en,zh")
    parser.add_argument("--seed", type=int, default=0)


def trained_and_held(args: argparse.Namespace) -> tuple[list[Company], list[Company]]:
    """Returns companies to train on and to measure on. These are of the last language alone: others lend what they
    have."""
    left_out, languages = set(filter(None, args.leave_out.split(","))), args.languages.split(",")
    known = [it for it in companies(args.companies) if it.language in languages]
    others = [it for folder in args.held for it in companies(folder) if it.turns]
    trained = [it for it in known if it.name not in left_out]
    held = [it for it in known if it.name in left_out] + others
    return trained, [it for it in held if it.language == languages[-1]]
