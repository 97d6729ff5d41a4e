"""Data sets as training dialogues. Shipped weights may be trained on those in `SHIPPED`; KBP, which
states no licence, is for measurement alone."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from ..dialogue import Dialogue

# Makes a dialogue from its record, with other evidence and wording in every epoch.
Make = Callable[[random.Random], Dialogue]


def records(path: Path) -> Iterator[dict]:
    """Yields the objects of a compressed file, one a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def makers(data: Path, names: tuple[str, ...], labels: Path | None = None) -> Iterator[tuple[str, Make]]:
    """Yields the makers of dialogues of the named data sets, with the data set's name. `labels`, if given, set the
    relevance of KBP's evidence."""
    from . import dstc11, graph, kbp, multiwoz, sgd, tables, topical_chat

    modules = {
        "sgd": sgd,
        "dstc11": dstc11,
        "multiwoz": multiwoz,
        "topical-chat": topical_chat,
        "graph": graph,
        "tables": tables,
        "kbp": kbp,
    }
    for name in names:
        of = {"labels": labels} if name == "kbp" else {}
        for make in modules[name].makers(data, **of):
            yield name, make


SHIPPED = ("sgd", "dstc11", "multiwoz", "topical-chat", "graph", "tables")
