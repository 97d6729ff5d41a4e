"""Data sets as training dialogues. Those in `SHIPPED` may feed weights that are shipped; KBP, whose
licence nobody states, is for measurement alone."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from ..dialogue import Dialogue

# Every epoch a dialogue is made anew from its record: other evidence, other wording.
Make = Callable[[random.Random], Dialogue]


def records(path: Path) -> Iterator[dict]:
    """The objects of a compressed file, one a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def makers(data: Path, names: tuple[str, ...], labels: Path | None = None) -> Iterator[tuple[str, Make]]:
    """What makes the dialogues of the named data sets, with the data set's name. KBP's evidence is as relevant as the
    labels say, where there are any."""
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
