"""Writes the figures that `turnstream models check minilm` compares with.

    python reference.py FOLDER-OF-THE-MODEL

embeds each line of sentences.txt with sentence-transformers and writes the vectors to minilm.f32:
little-endian f32, one row of 384 per line. The committed file was made with sentence-transformers
6.2.0 and torch 2.15.0 on a CPU, one sentence at a time.
"""

import pathlib
import sys

from sentence_transformers import SentenceTransformer

here = pathlib.Path(__file__).parent
sentences = (here / "sentences.txt").read_text(encoding="utf-8").splitlines()
model = SentenceTransformer(sys.argv[1], device="cpu")
vectors = model.encode(sentences, batch_size=1, normalize_embeddings=True)
(here / "minilm.f32").write_bytes(vectors.astype("<f4").tobytes())
lengths = [len(model.tokenizer.encode(sentence)) for sentence in sentences]
print(f"{vectors.shape[0]} vectors of {vectors.shape[1]}; tokens {lengths}")
