"""Writes a trained model in common formats: safetensors with Llama's names, and GGUF, at 8 bits by
default."""

import argparse
import json
from pathlib import Path

import gguf
import torch
from gguf.quants import quantize
from safetensors.torch import save_file
from torch import Tensor

from .network import Network, Shape
from .vocabulary import END, PAD, START, Vocabulary, special_tokens

# Longer streams than these were not trained on, but for those that history leaves out.
CONTEXT = 1024

_GGUF = {
    "norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "wide_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_LLAMA = {
    "norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "wide_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deploy/training/train export",
        description="Exports a trained model as OUT/model.safetensors with config.json, tokenizer.json, and as "
        "OUT/NAME.gguf.",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder that was trained into")
    parser.add_argument("--name", default="reader-en", help="the model's name (default reader-en)")
    parser.add_argument(
        "--weights", default="q8_0", choices=["q8_0", "f16", "f32"], help="of the GGUF file (default q8_0)"
    )
    args = parser.parse_args()
    if not (args.out / "checkpoint.pt").exists():
        parser.error(f"{args.out} has no checkpoint.pt: train into it first")
    return args


def main() -> None:
    args = parsed()
    network, vocabulary = trained(args.out)
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    write_safetensors(args.out, weights, network.shape)
    write_gguf(args.out / f"{args.name}.gguf", args.name, args.weights, weights, network.shape, vocabulary)


def trained(out: Path) -> tuple[Network, Vocabulary]:
    """Returns the network of a checkpoint, in full precision, and its tokens."""
    network = Network(Shape(**json.loads((out / "shape.json").read_text())))
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    network.load_state_dict(state["optimisers"]["weights"])
    return network, Vocabulary.load(out / "tokenizer.json")


def write_safetensors(folder: Path, weights: dict[str, Tensor], shape: Shape) -> None:
    named = {}
    for name, weight in weights.items():
        parts = name.split(".")
        if parts[0] == "layers":
            named[f"model.layers.{parts[1]}.{_LLAMA[parts[2]]}.weight"] = weight
        else:
            named[{"embeddings": "model.embed_tokens.weight", "norm": "model.norm.weight"}[parts[0]]] = weight
    save_file({name: weight.contiguous() for name, weight in named.items()}, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": shape.vocabulary, "hidden_size": shape.width, "intermediate_size": shape.wide,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads, "head_dim": shape.head, "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
        "bos_token_id": special_tokens().index(START), "eos_token_id": special_tokens().index(END),
        "pad_token_id": special_tokens().index(PAD),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """Returns the rows of queries or keys in GGUF's order: the two of a rotated pair beside each other."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def write_gguf(
    path: Path, name: str, kind: str, weights: dict[str, Tensor], shape: Shape, vocabulary: Vocabulary
) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.wide)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.theta)
    writer.add_rope_dimension_count(shape.head)
    of_tokenizer(writer, vocabulary)
    of_matrices = gguf.GGMLQuantizationType[kind.upper()]
    for tensor, weight in weights.items():
        parts = tensor.split(".")
        if parts[0] == "layers":
            part = parts[2]
            if part in ("query", "key"):
                weight = neighbours(weight, shape.heads if part == "query" else shape.key_heads)
            named = f"blk.{parts[1]}.{_GGUF[part]}.weight"
        else:
            named = {"embeddings": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]
        numbers = weight.float().contiguous().numpy()
        if numbers.ndim == 1 or kind == "f32":
            writer.add_tensor(named, numbers)
        else:
            writer.add_tensor(named, quantize(numbers, of_matrices), raw_dtype=of_matrices)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size:,} bytes")


def of_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    described = json.loads(vocabulary.tokenizer.to_str())
    tokens = sorted(described["model"]["vocab"].items(), key=lambda token: token[1])
    special = set(special_tokens())
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token, _ in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in described["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    # llama.cpp's name for this: single digits, then GPT-2's words.
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(special_tokens().index(START))
    writer.add_eos_token_id(special_tokens().index(END))
    writer.add_pad_token_id(special_tokens().index(PAD))
    writer.add_add_bos_token(False)


if __name__ == "__main__":
    main()
