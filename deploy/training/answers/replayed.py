"""Replays companies through the engine, and counts what their customers get: answers that are right and wrong, and of the
other turns those that are answered falsely, handed over, or met as small talk."""

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from .companies import Company, Section, Turn, answers, companies, plain


def records(company: Company) -> list[dict]:
    """Returns each turn as a conversation of its own, after what was said before it."""
    made = []
    for turn in company.turns:
        said = [*turn.history, {"speaker": "user", "text": turn.text}]
        ids = [f"{turn.id}.{at}" for at in range(len(said) - 1)] + [turn.id]
        made += [{"conversation_id": turn.id, "turn_id": id} | it for id, it in zip(ids, said)]
    return made


def responses(turnstream: Path, folder: Path, company: Company, taught: bool) -> dict[str, dict]:
    """Returns the engine's responses, by the ids of their turns."""
    with tempfile.TemporaryDirectory() as made:
        at = Path(made)

        def run(*args):
            done = subprocess.run([turnstream, *args], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)

        run("documents", "import", folder / "docs", "--out", at / "store", "--encoder", "reader")
        phrasings = f'[teaching]\nphrasings = "{folder}/phrasings.jsonl"\n' if taught else ""
        sources = f'[sources.pages]\nkind = "documents"\n[sources.rows]\nkind = "table"\nfile = "{folder}/table.jsonl"\n'
        (at / "turnstream.toml").write_text(f'[documents]\ndirectory = "{at}/store"\n{phrasings}{sources}')
        lines = [json.dumps(it, ensure_ascii=False) for it in records(company)]
        (at / "turns.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        run("replay", at / "turns.jsonl", "--config", at / "turnstream.toml", "--out", at / "responses.jsonl")
        said = map(json.loads, (at / "responses.jsonl").read_text(encoding="utf-8").splitlines())
        return {it["turn_id"]: it for it in said}


def is_right(response: dict, turn: Turn, company: Company) -> bool:
    """Whether an answer says a sentence that answers, a cell of a row that does, or names all such rows. A turn that a page and
    a row answer together needs something of each."""
    words = lambda text: plain(text).casefold()
    text, rows = words(response["text"]), rows_of(response)
    golden = [section for section in company.sections if section.place in turn.gold]

    def says(section: Section, sentence: str) -> bool:
        if not section.place.startswith("row:"):
            # A table row of a page is said with the names of its columns.
            return all(words(cell) in text for cell in sentence.split(" | "))
        column, value = sentence.split(": ", 1)
        return section.place in rows and any(words(it) in text for it in sayings(column, value, company.language))

    said = [any(says(section, section.sentences[at]) for at in answers(turn, section)) for section in golden]
    if turn.kind == "multi":
        return all(said)
    named = [section.title.casefold() in text for section in golden if section.place.startswith("row:")]
    return any(said) or len(named) > 1 and all(named)


def sayings(column: str, value: str, language: str) -> list[str]:
    """Returns how a cell's value can be said: 118.0 as 118, in Chinese yes and no with the column (不含海鲜, 早餐：是)."""
    value = {"是": "yes", "否": "no"}.get(value, value)
    if language != "zh" or value not in ("yes", "no"):
        return [value.removesuffix(".0")]
    if value == "yes":
        return [f"：{column}", f"，{column}", f"{column}：是"]
    return [f"不{column}", f"没{column}", f"{column}：否"]


def rows_of(response: dict) -> list[str]:
    """Returns the places of the rows that a response is made from."""
    rows = [it["row"]["columns"] for it in response["evidence"] if it.get("selected") and "row" in it]
    return [f"row:{cell['value']}" for row in rows for cell in row if cell["name"] in ("id", "编号")]


def outcome(response: dict, turn: Turn, company: Company) -> str:
    if response["action"] != "answer":
        return response["action"]
    return "right" if turn.gold and is_right(response, turn, company) else "wrong"


def main():
    parser = argparse.ArgumentParser(prog="python -m answers.replayed", description=__doc__)
    parser.add_argument("--turnstream", type=Path, required=True, help="the program, such as target/release/turnstream")
    parser.add_argument("--companies", type=Path, required=True, help="a folder of companies, such as tests/companies")
    parser.add_argument("--taught", action="store_true", help="with their phrasings")
    parser.add_argument("--out", type=Path, help="a file for each turn with its response and outcome, in JSON lines")
    args = parser.parse_args()
    counts, lines = {}, []
    for company in companies(args.companies):
        said = responses(args.turnstream.resolve(), args.companies.resolve() / company.name, company, args.taught)
        of_company = Counter()
        for turn in company.turns:
            kind = "answerable" if turn.gold else turn.kind
            found = outcome(said[turn.id], turn, company)
            of_company[kind, found] += 1
            counts.setdefault(company.language, Counter())[kind, found] += 1
            line = {"id": turn.id, "kind": kind, "text": turn.text, "response": said[turn.id]["text"], "outcome": found}
            lines.append(json.dumps(line, ensure_ascii=False))
        print(company.name, {" ".join(key): count for key, count in sorted(of_company.items())}, flush=True)
    for language, of_language in counts.items():
        print(language, {" ".join(key): count for key, count in sorted(of_language.items())})
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
