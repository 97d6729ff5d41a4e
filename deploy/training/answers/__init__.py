"""Trains the networks that find and judge answers in a company's pages and tables: a bi-encoder (turn and section as
vectors) and a reader (turn and section together). It trains on companies with labelled turns, and holds out whole
companies, never single turns."""
