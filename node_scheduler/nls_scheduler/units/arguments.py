"""What Python's own parser of arguments takes for what nobody meant."""

from __future__ import annotations

import argparse
from typing import Any


class ArgumentParser(argparse.ArgumentParser):
    """Python's, in each version of which the value in `--name=--` is refused."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Up to 3.12 it makes an empty list of it, which no command expects.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)
