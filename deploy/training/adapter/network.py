"""Joins a language model and a LoRA adapter, and asks them for the probability of the first of two answers: the softmax
over the logits of both answers' first tokens, behind the last token of the prompt."""

import importlib.util
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import peft
import torch
import transformers
from torch import Tensor, nn

from . import Refused
from .examples import json_of

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
# Its own code calls what it deprecates.
warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def can_quantise() -> bool:
    """Whether this machine can hold a base at 4 bits: with CUDA, and with the package bitsandbytes."""
    return torch.cuda.is_available() and importlib.util.find_spec("bitsandbytes") is not None


def base_of(folder: Path, is_quantised: bool = False) -> nn.Module:
    """Opens a language model of a folder in the layout of transformers, in full precision or as QLoRA holds it: nf4,
    quantised twice."""
    config = json_of(folder / "config.json", "give a folder in the layout of transformers, such as of `train adapter base`")
    if not any(folder.glob("*.safetensors")):
        raise Refused(f"{folder}: there is no model.safetensors; put the weights of the model into its folder")
    options = {"dtype": torch.float32}
    if is_quantised:
        options = {"dtype": torch.bfloat16, "device_map": {"": 0}}
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    options |= {"use_safetensors": True, "output_loading_info": True}
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError) as error:
        kind = config.get("model_type")
        raise Refused(f"{folder}: no causal language model ({kind!r}) can be read: {error}; give another base") from error
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise Refused(f"{folder}: there is no tensor {missing[0]!r}; put all weights of the model into its folder")
    # Its folder is nobody else's business: peft writes this name into the adapter.
    model.name_or_path = model.config._name_or_path = folder.resolve().name
    return model if is_quantised else model.to(device())


def with_new_adapter(model: nn.Module, rank: int, alpha: int, dropout: float) -> peft.PeftModel:
    """Adds an adapter of zeros to all linear projections, but not to the one that makes the logits."""
    head = model.get_output_embeddings()
    names = {
        name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear) and part is not head
    }
    if not names:
        raise Refused(f"{model.name_or_path}: it has no linear projections; give another base, such as a Llama")
    if getattr(model, "is_loaded_in_4bit", False):
        model = peft.prepare_model_for_kbit_training(model)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=sorted(names),
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.name_or_path,
    )
    return peft.get_peft_model(model, config)


def with_adapter(model: nn.Module, folder: Path) -> peft.PeftModel:
    """Adds the adapter of a folder."""
    json_of(folder / "adapter_config.json", "give an adapter of `train adapter fit`")
    try:
        return peft.PeftModel.from_pretrained(model, folder).eval()
    except (OSError, ValueError, RuntimeError) as error:
        # There is a line for each tensor.
        said = str(error).splitlines()[-1].strip().rstrip(".")
        raise Refused(f"{folder}: it does not fit {model.name_or_path}: {said}; give the base it was trained on") from error


def save_adapter(model: peft.PeftModel, folder: Path) -> None:
    """Writes `adapter_config.json` and `adapter_model.safetensors`."""
    model.save_pretrained(folder, save_embedding_layers=False)
    # An empty form of a card, which says nothing about this adapter.
    (folder / "README.md").unlink(missing_ok=True)
    # peft holds names in a set, whose order differs from one run to the next.
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2) + "\n")


def logits_behind(model: nn.Module, rows: list[list[int]]) -> Tensor:
    """Returns the logits behind the last token of each row, [rows, tokens of the vocabulary]. Shorter rows are filled
    behind their end, where no token of theirs looks."""
    ends = torch.tensor([len(row) - 1 for row in rows])
    tokens = torch.zeros(len(rows), int(ends.max()) + 1, dtype=torch.long)
    for at, row in enumerate(rows):
        tokens[at, : len(row)] = torch.tensor(row)
    places = ends.unique()
    logits = model(input_ids=tokens.to(device()), logits_to_keep=places.to(device()), use_cache=False).logits
    return logits[torch.arange(len(rows)), torch.searchsorted(places, ends)].float()


def by_length(rows: list[list[int]], size: int) -> Iterator[list[int]]:
    """Yields places of rows in batches of similar length."""
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    for at in range(0, len(order), size):
        yield order[at : at + size]


@torch.no_grad()
def probabilities(model: nn.Module, rows: list[list[int]], answers: list[int], size: int = 8) -> list[float]:
    """Returns the probability of the first answer for each row of tokens."""
    found = [0.0] * len(rows)
    for places in by_length(rows, size):
        logits = logits_behind(model, [rows[at] for at in places])
        chances = logits[:, answers].double().softmax(-1)[:, 0]
        for at, chance in zip(places, chances.tolist()):
            found[at] = chance
    return found
