"""The unified model: one small decoder that plans sources, scores evidence and words a response
(UniMS-RAG, section 4). `dialogue` defines a training dialogue, `corpora` reads data sets into
it, `stream` lays one out as tokens, `network` is the decoder, `train` trains it and `export` writes
the files that the engine reads."""
