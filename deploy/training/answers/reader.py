"""Trains the reader on top of the bi-encoder: it reads a turn and a section together, and finds which sentence or cell
answers, and whether any does.

Each text goes through the bi-encoder's lower layers by itself, as for its vector. These layers are not trained, so a
section's states are known before a turn comes. The states of utterance, turns before and section go together through
upper layers of the reader's own. The mean of a sentence's tokens gives its score. A turn chooses among the sentences of
its candidates and none, whose score is 0.
"""

import argparse
import copy
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .bi_encoder import LONGEST_SECTION, LONGEST_TEXT, Indexed, queries
from .companies import Company, Section, Turn, answers, options, trained_and_held
from .network import Bert, Optimiser, Words, at_its_fastest, padded, seconds

UTTERANCE, USER_BEFORE, SYSTEM_BEFORE, SECTION = range(4)


@dataclass
class Row:
    """The reader's input for a turn and a section."""

    texts: list[tuple[int, Tensor]]  # states with their roles, the section last
    spans: list[tuple[int, int]]  # where the section's sentences are in it
    near: Tensor  # by sentence: the cosines of it and of its section with the question


class Near:
    """How near a company's sections and their sentences are to its turns, by the bi-encoder."""

    @torch.no_grad()
    def __init__(self, network: Bert, words: Words, company: Company):
        indexed = Indexed(words, company)
        sections, sentences = indexed.vectors(network)
        asked = queries(network, words, company.turns)
        self.turns = {turn.id: at for at, turn in enumerate(company.turns)}
        self.sections = {id(section): at for at, section in enumerate(company.sections)}
        self.of_sections, self.of_sentences = asked @ sections.T, asked @ sentences.T
        self.places = [[n for n, (of, _) in enumerate(indexed.sentences) if of == at] for at in range(len(company.sections))]

    def first(self, turn: Turn, most: int) -> list[int]:
        near = self.of_sections[self.turns[turn.id]]
        return near.topk(min(most, len(near))).indices.tolist()

    def of(self, turn: Turn, section: Section) -> Tensor:
        turn, section = self.turns[turn.id], self.sections[id(section)]
        of_sentences = self.of_sentences[turn, self.places[section]]
        return torch.stack([of_sentences, self.of_sections[turn, section].expand(len(of_sentences))], 1)


class Reader(nn.Module):
    """The reader's own layers, on top of the lower layers' states of each text."""

    def __init__(self, bert: Bert, own: int):
        super().__init__()
        self.upper = copy.deepcopy(bert.layers[len(bert.layers) - own :])
        width = bert.words.weight.shape[1]
        # The role of a text: utterance, the user before, the system before, the section.
        self.roles = nn.Embedding(4, width)
        nn.init.zeros_(self.roles.weight)
        self.score = nn.Linear(width, 1)
        nn.init.zeros_(self.score.bias)
        # The factors of the cosines of sentence and section with the question.
        self.nearness = nn.Parameter(torch.tensor([10.0, 10.0]))
        nn.init.constant_(self.score.bias, -10.0)

    def joined(self, row: Row) -> Tensor:
        """Returns the states of a row's texts together, each with its role."""
        return torch.cat([states + self.roles.weight[role] for role, states in row.texts])

    @staticmethod
    def batch(joined: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Returns states padded to one length, and the mask of those that attention sees."""
        x = nn.utils.rnn.pad_sequence(joined, batch_first=True)
        lengths = torch.tensor([len(row) for row in joined])
        return x, (torch.arange(x.shape[1])[None] < lengths[:, None])[:, None, None, :]

    def forward(self, rows: list[Row]) -> list[Tensor]:
        """Returns the scores of each row's sentences."""
        found = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda at: sum(len(states) for _, states in rows[at].texts))
        # Rows of similar length together need little padding.
        for begin in range(0, len(order), 8):
            chunk = order[begin : begin + 8]
            joined = [self.joined(rows[at]) for at in chunk]
            states = Bert.through(*self.batch(joined), self.upper)
            for place, at in enumerate(chunk):
                row = rows[at]
                first = len(joined[place]) - len(row.texts[-1][1])
                means = [states[place, first + a : first + b].mean(0) for a, b in row.spans]
                found[at] = self.score(torch.stack(means)).squeeze(-1).float() + row.near @ self.nearness.float()
        return found


class Texts:
    """The lower layers' states of texts, each by itself."""

    def __init__(self, bert: Bert, words: Words, own: int):
        self.bert, self.words = bert, words
        self.lower = bert.layers[: len(bert.layers) - own]
        self.known: dict[tuple[int, ...], Tensor] = {}

    def tokens(self, text: str) -> tuple[int, ...]:
        return (self.words.cls, *self.words.of(text)[-(LONGEST_TEXT - 2) :], self.words.sep)

    def of_turn(self, turn: Turn) -> list[tuple[int, tuple[int, ...]]]:
        last = {it["speaker"]: it["text"] for it in turn.history}
        parts = [(UTTERANCE, self.tokens(turn.text))]
        roles = {"user": USER_BEFORE, "system": SYSTEM_BEFORE}
        return parts + [(role, self.tokens(last[speaker])) for speaker, role in roles.items() if speaker in last]

    def of_section(self, section: Section) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
        """Returns its tokens, and where each sentence begins and ends; sentences without room cannot be chosen."""
        tokens, spans = [self.words.cls, *self.words.of(section.title)], []
        for sentence in section.sentences:
            begin = len(tokens)
            tokens = [*tokens, *self.words.of(sentence)][: LONGEST_SECTION - 1]
            if begin < len(tokens):
                spans.append((begin, len(tokens)))
        return (*tokens, self.words.sep), spans

    @torch.no_grad()
    def states(self, texts: list[tuple[int, ...]], most: int = 32):
        """Computes the states of texts that are not known yet."""
        new = sorted({it for it in texts if it not in self.known}, key=len)
        for begin in range(0, len(new), most):
            chunk = new[begin : begin + most]
            x, mask = self.bert.embedded(padded([list(it) for it in chunk]))
            for it, state in zip(chunk, self.bert.through(x, mask, self.lower)):
                self.known[it] = state[: len(it)].clone()

    def rows(self, pairs: list[tuple[Turn, Section, Tensor]]) -> list[Row]:
        """Returns the reader's input for each turn and section, with their nearness."""
        made = [(self.of_turn(turn), *self.of_section(section), near) for turn, section, near in pairs]
        self.states([text for turn, section, *_ in made for text in (section, *(it for _, it in turn))])
        return [
            Row([(role, self.known[text]) for role, text in [*turn, (SECTION, section)]], spans, near)
            for turn, section, spans, near in made
        ]


@torch.no_grad()
def measured(reader: Reader, texts: Texts, held: list[Company], near: dict[str, Near], most: int) -> dict:
    right, sentence, total, false, negatives, curve = 0, 0, 0, 0, 0, []
    for company in held:
        for turn in company.turns:
            if turn.kind not in ("document", "table", "unanswerable", "out_of_domain"):
                continue
            of = near[company.name]
            chosen = [company.sections[at] for at in of.first(turn, most)]
            found = [row.tolist() for row in reader(texts.rows([(turn, it, of.of(turn, it)) for it in chosen]))]
            best, place, at = max((max(row), place, row.index(max(row))) for place, row in enumerate(found))
            is_right = at in answers(turn, chosen[place])
            curve.append((best, is_right, bool(turn.gold)))
            if turn.gold:
                total += 1
                right += chosen[place].place in turn.gold
                sentence += is_right
            else:
                negatives += 1
                false += best > 0
    curve.sort(reverse=True)
    best_recall, said, hit, wrong = {}, 0, 0, 0
    for score, is_right, is_answerable in curve:
        said += 1
        hit += is_right
        wrong += not is_answerable
        for level in (0.65, 0.75, 0.85):
            if hit / said >= level:
                best_recall[level] = (round(hit / total, 3), round(wrong / max(1, negatives), 3))
    return {
        "section": round(right / total, 3), "sentence": round(sentence / total, 3), "of": total,
        "false at 0": round(false / max(1, negatives), 3), "recall and false answers at precision": best_recall,
    }


def reading_loss(reader: Reader, texts: Texts, batch: list[tuple[Turn, list[Section], Near]], missed: float) -> Tensor:
    """Returns the cross-entropy over the sentences of each turn's sections, and none. With probability `missed` the
    section that answers is left out, as retrieval may miss it: then none is right."""
    pairs, groups = [], []
    for turn, chosen, near in batch:
        if random.random() < missed:
            chosen = [section for section in chosen if section.place not in turn.gold]
        groups.append((turn, chosen, len(pairs)))
        pairs += [(turn, section, near.of(turn, section)) for section in chosen]
    scores = reader(texts.rows(pairs))
    loss = torch.zeros(())
    for turn, chosen, begin in groups:
        logits = torch.cat([*scores[begin : begin + len(chosen)], torch.zeros(1)])
        right, before = [], 0
        for row, section in zip(scores[begin:], chosen):
            right += [before + at for at in answers(turn, section) if at < len(row)]
            before += len(row)
        loss = loss + torch.logsumexp(logits, 0) - torch.logsumexp(logits[right or [len(logits) - 1]], 0)
    return loss / len(batch)


def candidates(company: Company, turn: Turn, near: Near, most: int) -> list[Section]:
    """Returns the places that answer, and others: mostly the nearest by the bi-encoder, now and then random ones."""
    places = {section.place: n for n, section in enumerate(company.sections)}
    chosen = [places[place] for place in turn.gold]
    pool = [at for at in near.first(turn, 16) if at not in chosen]
    # The nearer a place, the more often it is taken.
    pool = [at for _, at in sorted((random.random() * (4 + rank), at) for rank, at in enumerate(pool))]
    while len(chosen) < most:
        at = pool.pop(0) if pool and random.random() < 0.9 else random.randrange(len(company.sections))
        if at not in chosen:
            chosen.append(at)
    random.shuffle(chosen)
    return [company.sections[at] for at in chosen]


def main():
    parser = argparse.ArgumentParser(prog="deploy/training/train reader", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of a trained bi-encoder")
    options(parser)
    parser.add_argument(
        "--cosines", nargs="*", default=[], metavar="MODEL=COMPANIES",
        help="a bi-encoder that was not trained on these companies, for their cosines: a network is nearer to what it was trained on",
    )
    parser.add_argument("--begin", type=Path, help="a file of layers and score to go on from")
    parser.add_argument("--out", type=Path, required=True, help="the file of its layers and score")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--groups", type=int, default=8, help="turns in a step")
    parser.add_argument("--candidates", type=int, default=3, help="sections that a turn is read with in training")
    parser.add_argument("--missed", type=float, default=0.2, help="share of turns that are read without what answers them")
    parser.add_argument("--layers", type=int, default=4, help="upper layers of its own")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    words = Words(args.model)
    trained, held = trained_and_held(args)
    bert = Bert.pretrained(args.model).eval()
    near = {}
    for model, folder in (it.split("=") for it in args.cosines):
        network, names = Bert.pretrained(Path(model)).eval(), {path.name for path in Path(folder).iterdir()}
        near |= {it.name: Near(network, Words(Path(model)), it) for it in trained if it.name in names}
    near |= {it.name: Near(bert, words, it) for it in trained + held if it.name not in near}
    reader = Reader(bert, args.layers)
    if args.begin:
        reader.load_state_dict(load_file(args.begin))
    texts = Texts(at_its_fastest(bert), words, args.layers)
    at_its_fastest(reader)

    turns = [(it, turn) for it in trained for turn in it.turns]
    steps = [batch for _ in range(args.epochs) for batch in chunked(turns, args.groups)]
    optimiser = Optimiser(list(reader.parameters()), args.rate, len(steps))
    began, losses = time.time(), []
    for at, batch in enumerate(steps):
        read = [(turn, candidates(it, turn, near[it.name], args.candidates), near[it.name]) for it, turn in batch]
        loss = reading_loss(reader, texts, read, args.missed)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if (at + 1) % 50 == 0 or at + 1 == len(steps):
            print(f"{at + 1}/{len(steps)} loss {sum(losses[-50:]) / len(losses[-50:]):.3f} {seconds(time.time() - began)}", flush=True)
        if (at + 1) % 400 == 0 or at + 1 == len(steps):
            if held:
                print("held out, of 4", reader.nearness.tolist(), measured(reader, texts, held, near, 4), flush=True)
            save_file({name: value.float() for name, value in reader.state_dict().items()}, args.out)


def chunked(turns: list, size: int) -> list[list]:
    order = random.sample(turns, len(turns))
    return [order[at : at + size] for at in range(0, len(order), size)]


if __name__ == "__main__":
    main()
