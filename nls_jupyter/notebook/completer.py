"""Tab completion of `%gpu` and `%%gpu` lines themselves. What can stand in them is imported for the first such line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.completer import SimpleCompletion, context_matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell


def install(shell: InteractiveShell) -> None:
    """Have IPython ask us too."""
    shell.Completer.custom_matchers.append(_match)


@context_matcher(identifier="nls_jupyter.completer", priority=100)  # type: ignore[untyped-decorator]
def _match(context: CompletionContext) -> SimpleMatcherResult:
    """Called by IPython; on our lines nothing else makes sense, so no other matcher is asked."""
    words = [word for word in _words(context.text_until_cursor) if word.startswith(context.token)]
    return {"completions": [SimpleCompletion(word, type="magic") for word in words], "suppress": bool(words)}


def _words(line: str) -> Sequence[str]:
    """Sub-commands, then their options: what may stand at the end of `line`, whatever of it is typed already."""
    words = line.split()
    before = words if line[-1:].isspace() else words[:-1]
    if not before or before[0] not in ("%gpu", "%%gpu"):
        return []
    from nls_jupyter.notebook.options import CELL_WORDS, WORDS

    match before:
        case ["%%gpu", *given]:
            return [option for option in CELL_WORDS if option not in given]
        case ["%gpu"]:
            return list(WORDS)
        case [_, command, *given]:
            return [word for word in WORDS.get(command, ()) if word not in given]
    return []
