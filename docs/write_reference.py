"""Writes the tables of reference.md from the parsers, the routes and the settings. Run by `make docs`."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from blocks import rewrite, table

from nls_jupyter.notebook import magics, options
from nls_scheduler import cli
from nls_scheduler.daemon.config import SECTION, NlsScheduler
from nls_scheduler.daemon.http.api import application

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tornado.routing import PathMatches, Rule

DOCUMENT = Path(__file__).with_name("reference.md")


def blocks() -> Mapping[str, str]:
    """All generated parts, by the names of their marks."""
    return {"nls": _nls(), "gpu": _gpu(), "http": _http(), "settings": _settings()}


def _nls() -> str:
    parser = cli._parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    common = {option for action in parser._actions for option in action.option_strings}
    shared = "Every command has these, before or after its name:\n\n" + _options(parser, {"-h", "--version"})
    return "\n\n".join([shared, *(_command(p, common) for each in commands.choices.values() for p in _leaves(each))])


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A command, or the commands that it has."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for each in action.choices.values():
            yield from _leaves(each)


def _command(parser: argparse.ArgumentParser, common: set[str]) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage:").split()) if parser.usage else parser.prog
    parts = [f"### `{parser.prog}`", f"`{usage}`" if parser.usage else "", parser.description or ""]
    parts += [_options(parser, common), f"```text\n{parser.epilog.strip()}\n```" if parser.epilog else ""]
    return "\n\n".join(part for part in parts if part)


def _options(parser: argparse.ArgumentParser, hidden: set[str]) -> str:
    rows = []
    for action in parser._actions:
        if hidden.intersection(action.option_strings) or isinstance(action, argparse._SubParsersAction):
            continue
        help_text = (action.help or "") % {"default": action.default, "prog": parser.prog}
        rows.append([f"`{_written(action)}`", help_text])
    return table(["option", "meaning"], rows) if rows else ""


def _written(action: argparse.Action) -> str:
    value = action.metavar
    if action.choices is not None:
        value = "|".join(str(choice) for choice in action.choices)
    elif value is None and action.nargs != 0:
        value = action.dest.upper()
    if not action.option_strings:
        return f"[{value}]" if action.nargs == "?" else str(value)
    name = ", ".join(action.option_strings)
    return name if action.nargs == 0 else f"{name} {value}"


def _gpu() -> str:
    doc = inspect.cleandoc(magics.GpuMagics.gpu.__doc__ or "")
    parts = [f"```text\n{doc}\n```"]
    for parser in (options._cell_parser(), options._request_parser()):
        parts += [f"### `{parser.prog}`", parser.description or "", _options(parser, {"-h", "--help"})]
    return "\n\n".join(parts)


def _http() -> str:
    # No request is handled here: the routes need neither a daemon nor anything else.
    app = cast("Any", application)(**dict.fromkeys(inspect.signature(application).parameters))
    rows = [[f"`{_path(rule)}`", _first_line(rule.target)] for rule in _rules(app.wildcard_router.rules)]
    return table(["path", "what it does"], rows)


def _rules(rules: list[Rule]) -> Iterator[Rule]:
    for rule in rules:
        if hasattr(rule.matcher, "regex"):
            yield rule


def _path(rule: Rule) -> str:
    pattern = cast("PathMatches", rule.matcher).regex.pattern
    return pattern.removesuffix("$").replace("([^/]+)", "{id}").replace("\\.", ".")


def _first_line(handler: type[Any]) -> str:
    return inspect.cleandoc(handler.__doc__ or "").split("\n")[0]


def _settings() -> str:
    traits = NlsScheduler.class_traits(config=True)
    in_order = [name for name in vars(NlsScheduler) if name in traits]  # some texts refer to the one above
    rows = [[f"`{name}`", f"`{traits[name].default()!r}`", traits[name].help] for name in in_order]
    return f"The section is `c.{SECTION}`.\n\n" + table(["setting", "default", "meaning"], rows)


if __name__ == "__main__":
    rewrite(DOCUMENT, blocks())
