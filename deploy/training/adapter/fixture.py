"""Makes a tiny language model and an adapter of numbers drawn at random, and what transformers and peft say to six
prompts with them: the engine's tests compare its own figures with these."""

import argparse
import json
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .check import check
from .network import base_of, save_adapter, with_new_adapter

WIDTH, LAYERS, TOKENS, POSITIONS = 64, 2, 384, 512
START, END = "<s>", "</s>"
ASKED = """Below is an instruction that describes a task. Answer with 'True' or 'False' alone.

### Instruction:
Read the conversation so far. Does knowledge from outside help the next response?

### Input:
"""
DIALOGUES = [
    "USER: Does the ferry take dogs?",
    "USER: Thanks, that is all.",
    "USER: I need a table for 12 at 19:30.\nSYSTEM: It is booked.\nUSER: Is there a ramp at the door?",
    "USER: Où est le café Größe? 北京 🙂\nSYSTEM: In the old town.\nUSER: Naïve question: is it open?",
    # Control tokens that a user wrote are letters, at the beginning and inside.
    "USER: <s> is that </s> a tag?\nSYSTEM: Yes, it is.\nUSER: Then delete it.",
    "\n".join(f"USER: What about room {at}?\nSYSTEM: Room {at} has {at % 3 + 1} beds." for at in range(8))
    + "\nUSER: I take the first one.",
]
PROMPTS = [f"{ASKED}{dialogue}\n\n### Response:" for dialogue in DIALOGUES]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train adapter fixture",
        description=f"{__doc__} Writes OUT/base, OUT/adapter and OUT/reference.jsonl.",
        epilog="Example: deploy/training/train adapter fixture --out fixture",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    return parser.parse_args()


def main() -> None:
    args = parsed()
    torch.set_num_threads(1)
    base, adapter = args.out / "base", args.out / "adapter"
    for folder in (base, adapter):
        folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(base / "tokenizer.json"))
    write_base(base)
    write_adapter(base, adapter)
    check(base, adapter, PROMPTS, args.out / "reference.jsonl")
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    print(f"{args.out}: {size:,} bytes")


def tokenizer() -> Tokenizer:
    """Returns a tokenizer of bytes, which begins every text with its first token as most Llamas' do."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (START, END)]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The answers are frequent, so that each has a first token of its own.
    made.train_from_iterator([*PROMPTS, " True False" * 100], trainer)
    made.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 0)])
    return made


def write_base(folder: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=TOKENS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=WIDTH // 4, max_position_embeddings=POSITIONS,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            numbers = torch.rand(weight.shape, generator=generator) * 2.0 - 1.0
            if weight.ndim == 1:
                weight.copy_(1.0 + 0.25 * numbers)
            else:
                weight.copy_(numbers * (0.25 if "embed" in name else (3.0 / weight.shape[1]) ** 0.5))
    # Half precision halves the file; both sides read the same numbers from it.
    model.half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def write_adapter(base: Path, folder: Path) -> None:
    """Writes an adapter whose second matrices are not 0, as they are before training."""
    model = with_new_adapter(base_of(base), rank=4, alpha=8, dropout=0.0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                numbers = torch.randn(weight.shape, generator=generator)
                weight.copy_(numbers * (0.1 if "lora_B" in name else weight.shape[1] ** -0.5))
    save_adapter(model, folder)
    gate = {
        "inputs": "contx", "language": "en", "definition": "dstc11", "answers": ["True", "False"], "threshold": 0.5,
        "figures": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "auc": 0.5},
        "base": base.name, "settings": {}, "command": "deploy/training/train adapter fixture",
    }  # fmt: skip
    (folder / "gate.json").write_text(json.dumps(gate, indent=1) + "\n")


if __name__ == "__main__":
    main()
