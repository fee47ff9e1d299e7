"""Tab completion of `%gpu` and `%%gpu` lines themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.completer import SimpleCompletion, context_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell


class Completer:
    """Completes sub-commands, then their options.

    Args:
        commands: what can follow `%gpu`, each with what can follow it.
        cell_options: what can follow `%%gpu`.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], cell_options: Sequence[str]) -> None:
        self._commands = commands
        self._cell_options = cell_options

    def install(self, shell: InteractiveShell) -> None:
        """Have IPython ask this one too."""

        @context_matcher(identifier="nls_jupyter.completer", priority=100)  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return self.match(context)

        shell.Completer.custom_matchers.append(match)

    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """Called by IPython; on our lines nothing else makes sense, so no other matcher is asked."""
        words = [word for word in self._words(context.text_until_cursor) if word.startswith(context.token)]
        return {"completions": [SimpleCompletion(word, type="magic") for word in words], "suppress": bool(words)}

    def _words(self, line: str) -> Sequence[str]:
        """What may stand at the end of `line`, whatever of it is typed already."""
        words = line.split()
        match words if line[-1:].isspace() else words[:-1]:
            case ["%%gpu", *given]:
                return [option for option in self._cell_options if option not in given]
            case ["%gpu"]:
                return list(self._commands)
            case ["%gpu", command, *given]:
                return [word for word in self._commands.get(command, ()) if word not in given]
        return []
