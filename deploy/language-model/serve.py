"""Serves a GGUF file with the server of llama.cpp; deploy/language-model/serve starts it."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import xllamacpp

PATIENCE_SECONDS = 120


def parameters(given, model):
    said = xllamacpp.CommonParams()
    said.model.path = str(model)
    said.model_alias = {"random"} if given.model is None else {Path(given.model).stem}
    said.hostnames = ["127.0.0.1"]
    said.port = given.port
    said.n_ctx = 16384
    said.n_parallel = 4
    if given.model is None:
        # In so small a model, threads cost more by waiting for each other at every layer than they gain.
        said.cpuparams.n_threads = said.cpuparams_batch.n_threads = 1
    said.embedding = True
    said.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if given.key:
        said.api_keys = [given.key]
    return said


def wait_until_it_answers(address):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"the server at {address} does not answer")
            time.sleep(0.05)


def end_with_input():
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model")
    parser.add_argument("--key")
    parser.add_argument("--attached", action="store_true")
    given = parser.parse_args()
    # The library's own shutdown would wait for requests under way.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: os._exit(0))
    if given.attached:
        threading.Thread(target=end_with_input, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model
        if model is None:
            model = Path(folder, "random.gguf")
            maker = Path(__file__).with_name("tiny_model.py")
            subprocess.run([sys.executable, maker, model], check=True)
        server = xllamacpp.Server(parameters(given, model))
        address = server.listening_address
        wait_until_it_answers(address)
    # The model is in memory; the folder is gone.
    print(f"url={address}/v1", flush=True)
    while True:
        time.sleep(3600)


main()
