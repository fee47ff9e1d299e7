"""Which cells of a notebook in auto mode belong to its kernel, and which to its GPU process. Pure text."""

from __future__ import annotations

import re

_LOCAL = re.compile(r"\s*%%local\b")
_LOCAL_ALONE = re.compile(r"\s*%%local\s*$")
_GPU_CELL = re.compile(r"\s*%%gpu\b")
_SAYS_MORE = re.compile(r"\s*%%gpu\b[^\S\n]*\S")
_GPU_LINE = re.compile(r"\s*(\?{1,2}\s*)?%(gpu|config\s+GpuMagics)\b")
_NOTHING = re.compile(r"\s*(#.*)?$")


def stays_in_kernel(code: str) -> bool:
    """Whether auto mode leaves this cell to the notebook's kernel: a `%%local` cell, no code, or only lines of ours.

    Those are `%gpu` and `%config GpuMagics`. A `%%gpu` line with options, or with a question, is the kernel's too, and
    has the cell below it run in the GPU process.
    """
    if _LOCAL.match(code) or _SAYS_MORE.match(code):
        return True
    return all(_NOTHING.match(line) or _GPU_LINE.match(line) for line in code.splitlines())


def asks_in_kernel(code: str, position: int) -> bool:
    """Whether completion or help at `position` is about what the kernel knows: a `%%local` cell, or a `%gpu` line."""
    if _LOCAL.match(code):
        return True
    begin = code.rfind("\n", 0, position) + 1
    line = code[begin:].partition("\n")[0]
    return bool(_GPU_LINE.match(line) or _GPU_CELL.match(line))


def is_gpu_cell(code: str) -> bool:
    """Whether the cell begins with `%%gpu`."""
    return bool(_GPU_CELL.match(code))


def without_local(lines: list[str]) -> list[str]:
    """An input transformation of IPython's: a cell that begins with `%%local` alone is the plain cell below it."""
    while lines and _LOCAL_ALONE.match(lines[0]):
        lines = lines[1:]
    return lines
