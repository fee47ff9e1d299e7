"""Writes the tables of `saved_state.md` from the kinds of objects that the tests save and restore."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

from blocks import rewrite, table

DOCUMENT = Path(__file__).parent / "saved_state.md"
sys.path.insert(0, str(DOCUMENT.parents[1] / "tests"))

import saved_state_zoo as zoo  # noqa: E402 - it lies beside the tests that hold it to its word
from nls_jupyter.saved_state import Saver  # noqa: E402


def blocks() -> dict[str, str]:
    kept = [[group, ", ".join(kinds)] for group, (_, kinds) in zoo.KEPT.items()]
    named = [[kind, _reason(setup, text)] for setup, kinds in zoo.NAMED.values() for kind, text in kinds.items()]
    return {"kept": table(["of", "kinds"], kept), "named": table(["kind", "what the user reads"], named)}


def _reason(setup: str, expression: str) -> str:
    with warnings.catch_warnings(action="ignore"), contextlib.closing(Saver()) as saver:
        names = zoo.namespace(setup, expression)
        try:
            (missing,) = saver.save({"x": names["x"]}, cell=None).missing
        finally:
            for close in names["__opened__"]:
                close()
    sentence, _, _ = missing.reason.partition(". ")
    return sentence + ")" * (sentence.count("(") - sentence.count(")"))


if __name__ == "__main__":
    rewrite(DOCUMENT, blocks())
