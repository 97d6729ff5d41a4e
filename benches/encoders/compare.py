#!/usr/bin/env python3
"""Compares turnstream's sentence encoder with sentence-transformers and ONNX Runtime.

    cargo build --release
    target/release/turnstream models pull minilm
    pip install sentence-transformers onnxruntime onnx
    python benches/encoders/compare.py --model FOLDER-OF-MINILM

embeds the fixed texts of `turnstream models bench` (src/lab/bench/) with each contender in turn,
several rounds in one run, since machines are seldom quiet, and prints each one's median rate and
its ratio to sentence-transformers in the same round. Tokenising is included everywhere. All work
in f32 on --threads cores:

- turnstream: `models bench`, so many threads, one call each
- sentence-transformers: `encode`, which sorts by length; torch with so many threads
- onnxruntime: the same network exported by torch, batches of similar length, so many threads with a
  session call each
"""

import argparse
import json
import pathlib
import queue
import statistics
import subprocess
import tempfile
import threading
import time

import numpy
import onnxruntime
import torch
from sentence_transformers import SentenceTransformer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def texts(kind):
    return (ROOT / "src/lab/bench" / f"{kind}.txt").read_text(encoding="utf-8").splitlines()


def export(model, folder):
    """The network as ONNX: tokens in, the last layer's rows out."""

    class Rows(torch.nn.Module):
        def __init__(self, bert):
            super().__init__()
            self.bert = bert

        def forward(self, input_ids, attention_mask):
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    path = str(pathlib.Path(folder) / "model.onnx")
    names = ["input_ids", "attention_mask"]
    shape = {name: {0: "batch", 1: "tokens"} for name in [*names, "rows"]}
    example = torch.ones((2, 8), dtype=torch.int64)
    torch.onnx.export(
        Rows(model[0].auto_model).eval(),
        (example, example),
        path,
        input_names=names,
        output_names=["rows"],
        dynamic_axes=shape,
        dynamo=False,
    )
    return path


class Onnx:
    """Batches of similar length, mean of the rows, length 1."""

    def __init__(self, model, path, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        self.tokenizer = model.tokenizer
        self.threads = threads

    def run(self, batch):
        tokens = self.tokenizer(batch, padding=True, truncation=True, max_length=256)
        ids = numpy.array(tokens["input_ids"], dtype=numpy.int64)
        mask = numpy.array(tokens["attention_mask"], dtype=numpy.int64)
        rows = self.session.run(["rows"], {"input_ids": ids, "attention_mask": mask})[0]
        sums = (rows * mask[:, :, None]).sum(axis=1)
        return sums / numpy.linalg.norm(sums, axis=1, keepdims=True)

    def encode(self, sentences, batch_size):
        ordered = sorted(range(len(sentences)), key=lambda at: len(sentences[at]))
        parts = [ordered[at : at + batch_size] for at in range(0, len(ordered), batch_size)]
        work, vectors = queue.SimpleQueue(), [None] * len(sentences)
        for part in parts:
            work.put(part)

        def loop():
            while True:
                try:
                    part = work.get_nowait()
                except queue.Empty:
                    return
                for at, vector in zip(part, self.run([sentences[at] for at in part])):
                    vectors[at] = vector

        threads = [threading.Thread(target=loop) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return numpy.array(vectors)


def rate(encode, sentences, seconds):
    """Sentences a second of `encode`, which is given all of them at once."""
    encode(sentences)
    started, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        encode(sentences)
        done += len(sentences)
    return done / passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the folder that `models pull` made")
    parser.add_argument("--program", default=str(ROOT / "target/release/turnstream"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model = SentenceTransformer(args.model, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        onnx = Onnx(model, export(model, folder), args.threads)

    def ours():
        command = [args.program, "models", "bench", args.model, "--json"]
        for flag in ["threads", "batch", "seconds"]:
            command += [f"--{flag}", str(getattr(args, flag))]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        speeds = json.loads(line.splitlines()[-1])
        return {kind: speeds[kind]["sentences_per_second"] for kind in ["facts", "utterances"]}

    def stock(sentences):
        return model.encode(sentences, batch_size=args.batch, normalize_embeddings=True)

    def exported(sentences):
        return onnx.encode(sentences, args.batch)

    apart = max(numpy.abs(stock(texts(kind)) - exported(texts(kind))).max() for kind in ["facts", "utterances"])
    assert apart < 1e-4, f"the exported network computes something else: {apart}"

    rates = {}
    for number in range(args.rounds):
        found = {("turnstream", kind): speed for kind, speed in ours().items()}
        for name, encode in [("sentence-transformers", stock), ("onnxruntime", exported)]:
            for kind in ["facts", "utterances"]:
                found[name, kind] = rate(encode, texts(kind), args.seconds)
        for key, speed in found.items():
            rates.setdefault(key, []).append(speed)
        print(f"round {number + 1}:", {" ".join(key): round(speed) for key, speed in found.items()}, flush=True)

    for (name, kind), speeds in sorted(rates.items(), key=lambda item: (item[0][1], item[0][0])):
        ratios = [speed / base for speed, base in zip(speeds, rates["sentence-transformers", kind])]
        print(
            f"{kind:<11} {name:<22} {statistics.median(speeds):7.0f}/s"
            f"  {statistics.median(ratios):.2f} x sentence-transformers"
            f"  ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
