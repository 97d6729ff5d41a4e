"""The gate as a language model with a LoRA adapter (RAGate-PEFT, section 3). `base` writes the unified model as a
language model to adapt, `examples` reads labelled prompts, `network` joins a model and an adapter and asks them, `fit`
trains the adapter, `figures` chooses its threshold, `encoder` fine-tunes an encoder to compare it with, `check` computes
probabilities for the engine to be compared with, and `fixture` makes the tiny model of the engine's tests."""

import os

# Models and tokenizers are folders on this machine; nothing asks a hub for one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Refused(Exception):
    """What was given cannot be used; the message names the file and the remedy."""
