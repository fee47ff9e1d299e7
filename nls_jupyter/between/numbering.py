"""Numbers the GPU process's cells as the notebook numbers them, so that `In[5]`, `Out[5]` and tracebacks agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from IPython.core.interactiveshell import InteractiveShell

    # As typed, and as IPython transformed them.
    Inputs = tuple[Sequence[str], Sequence[str]]

# In the metadata of an execute request: the number that the notebook gave its cell.
KEY = "nls_execution_count"


def number_next_cell(shell: InteractiveShell, count: int, inputs_of: Callable[[int], Inputs]) -> None:
    """Make the next cell `In[count]`.

    A number that comes again (a second `%%gpu` in one cell of the notebook) replaces the earlier cell's.

    Args:
        shell: the GPU process's.
        count: the number.
        inputs_of: the notebook's cells from a number on; asked for those that ran elsewhere: in the notebook's kernel,
            or in a GPU process before this one.
    """
    history: Any = shell.history_manager
    if count < shell.execution_count:
        # The history's database knows each number of a session once, and IPython would complain in the cell's output.
        history.writeout_cache()
        history.new_session()
    known = len(history.input_hist_raw)
    missing = inputs_of(known) if known < count else ((), ())
    for inputs, elsewhere in zip((history.input_hist_raw, history.input_hist_parsed), missing, strict=True):
        inputs.extend(elsewhere)
        inputs.extend([""] * (count - len(inputs)))
        del inputs[count:]
    shell.execution_count = count


def inputs_from(shell: InteractiveShell, start: int) -> Inputs:
    """The notebook's cells from number `start` on, as its kernel knows them."""
    history: Any = shell.history_manager
    return list(history.input_hist_raw[start:]), list(history.input_hist_parsed[start:])
