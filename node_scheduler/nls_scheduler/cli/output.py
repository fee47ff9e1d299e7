"""How the command line talks: results on stdout, everything about it on stderr."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from nls_scheduler.units.texts import columns, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

SENTENCE_LIMIT: Final = 4000
NAME_SHOWN: Final = 40
_LAYOUT: Final = "\n\t"


def say(text: str) -> None:
    """A result, on stdout. Raises OSError where that is closed, or its disk is full."""
    print(text, file=standard_output(), flush=True)


def standard_output() -> TextIO:
    """Where results go. Raises OSError where it is closed."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "there is no standard output", None)
    return sys.stdout


def tell(text: str) -> None:
    """A notice or an error, on stderr; what repeats a variable of 100 kB is told without its middle."""
    if len(text) > SENTENCE_LIMIT:
        text = f"{text[: SENTENCE_LIMIT // 2]} ... {text[-SENTENCE_LIMIT // 2 :]}"
    write(sys.stderr, f"nls: {printable(text, besides=_LAYOUT)}\n")


def why(error: Exception) -> str:
    """What went wrong, as a sentence; of the system's errors their words and whose file it is, without their number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return str(error)


def write(stream: TextIO, text: str) -> None:
    """To a person, at once; where the disk behind it is full the exit code has to say it all."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        if stream is sys.stderr:  # it would be tried again at the end, and cost the exit code
            sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end


def shortened(name: str) -> str:
    """As it fits into a table: a long one loses its middle, as copies of a notebook differ at the end."""
    if len(name) <= NAME_SHOWN:
        return name
    end = (NAME_SHOWN - 3) // 2
    return f"{name[: NAME_SHOWN - 3 - end]}...{name[-end:]}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first row is the heading, the last column is not padded."""
    rows = [list(map(_as_written, row)) for row in rows]
    widths = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _as_written(text: str) -> str:
    r"""What standard output makes of it: letters that its encoding lacks are longer there, as in `na\xefve`."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
