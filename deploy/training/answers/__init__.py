"""Trains what finds and judges answers from a company's pages and tables: a bi-encoder (turn and section as vectors) and a
reader (turn and section together), on `companies-train`: whole companies are left out, never turns."""
