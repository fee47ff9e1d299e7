"""From what somebody asks to the results: `nls simulate` without its command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from nls_scheduler.units.counts import counted
from nls_scheduler.units.sizes import format_seconds
from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.generator.portrait import portrait
from nls_scheduler.what_if.observing.record import is_observation
from nls_scheduler.what_if.observing.rows import observed_rows
from nls_scheduler.what_if.plays import Crew, Estimate, Play
from nls_scheduler.what_if.report.results import Results, duration
from nls_scheduler.what_if.scenario import NO_NODE, Node, Scenario, policies_named, settings_of
from nls_scheduler.what_if.search import best_possible, extents_by_seed, fewest_possible, search
from nls_scheduler.what_if.workload_file.reading import check_can_be_read_again
from nls_scheduler.what_if.workload_file.rows import is_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nls_scheduler.what_if.scenario import Source
    from nls_scheduler.what_if.workload_file.rows import Extent

FEW_ROWS: Final = 200
"""A workload of fewer is played sooner than other processes have begun."""


class Told(Protocol):
    """Hears how far it is: what is being done, which part of it, and seconds that are left, if that can be known."""

    def __call__(self, doing: str, part: float, left_s: float | None) -> None:
        """Called now and then."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line; exactly one of `workload`, `generate` and `journal` is given."""

    workload: Path | None = None
    generate: str | None = None
    journal: Path | None = None
    seed: int = 1
    request: float | int = 0.5
    limit: float | int = 1.0
    commands_per_day: float = 0.0
    node: str | None = None
    policies: str | None = None
    assignments: tuple[str, ...] = ()
    requests_by: float = 1.0
    more_users: int = 0
    seeds: int = 0


def scenario_of(asked: Asked, told: Told) -> Scenario:
    """What is to be played; `told` hears how far a journal has been read.

    Raises ValueError, WorkloadFileError too, with one sentence, or OSError.
    """
    policies_named(asked.policies)
    if is_below(asked.limit, asked.request, None):
        raise ValueError("The limit of the notebooks is below their request.")
    costs, rules = settings_of(asked.assignments)
    source, running = _source(asked, told, int(costs.context_bytes))
    node = running or NO_NODE
    if asked.node is not None:
        node = Node.parse(asked.node, running)
    return Scenario(source, node, costs, rules, asked.requests_by, asked.more_users)


def _source(asked: Asked, told: Told, context_bytes: int) -> tuple[Source, Node | None]:
    if asked.workload is not None:
        check_can_be_read_again(asked.workload)
        _check_means_something(asked, seed="--seed", commands_per_day="--commands")
        if is_observation(asked.workload):
            return observed_rows(asked.workload, asked.request, asked.limit, context_bytes), None
        _check_means_something(asked, request="--request", limit="--limit")
        return asked.workload, None
    if asked.journal is not None:
        _check_means_something(
            asked, seed="--seed", commands_per_day="--commands", request="--request", limit="--limit"
        )
        from nls_scheduler.what_if.observing.journals import workload_of

        return workload_of(asked.journal, heard(told, "reading the journal"))
    recipe = Recipe.parse(asked.generate or "")
    asks = replace(recipe, seed=asked.seed, request=asked.request, limit=asked.limit)
    return replace(asks, commands_per_day=asked.commands_per_day), None


def _check_means_something(asked: Asked, **options: str) -> None:
    """Raises ValueError where one of `options` was given, by their fields: they change nothing of such a workload."""
    usual = Asked()
    for name, option in options.items():
        if getattr(asked, name) != getattr(usual, name):
            raise ValueError(f"{option} changes nothing in a workload that has its own: leave it out.")


def results_of(asked: Asked, scenario: Scenario, told: Told) -> Results:
    """Plays all of it. After Ctrl-C what had been played, with `whole` false. Raises as `scenario_of`."""
    policies = policies_named(asked.policies)
    told("reading", 0.0, None)
    extent = scenario.extent(told=heard(told, "reading"))
    extents = extents_by_seed(scenario, extent, _seeds(asked))
    lines = portrait(scenario.rows())
    results = Results(
        _words(asked, extent), scenario.node, extent, scenario.costs, asked.assignments, lines, seeds=len(extents)
    )
    if extent.cells:
        results.best = best_possible(scenario, extent, heard(told, "finding the best possible"))
    with Crew(1 if extent.rows < FEW_ROWS else None) as crew:
        crew.progress = heard(told, "playing")
        plays = [Play(scenario, name, extent=extent) for name in policies]
        found = {play.policy: figures for play, figures in crew.all_of(plays)}
        results.figures = {name: found[name] for name in policies if name in found}
        if asked.seeds and extent.cells and not crew.stopped:
            crew.progress = heard(told, "searching")
            results.needed = {one.policy: one for one in search(scenario, policies, extents, crew)}
            if not crew.stopped:
                results.needed["oracle"] = fewest_possible(scenario, extents)
        results.whole = not crew.stopped
    return results


def heard(told: Told, doing: str) -> Callable[[float], None]:
    """For whoever knows only which part is done: `told` also hears what is left."""
    estimate = Estimate()
    return lambda part: told(doing, part, estimate.left_s(part))


def _seeds(asked: Asked) -> int:
    """A workload that was recorded has one history only."""
    return asked.seeds if asked.generate is not None else min(1, asked.seeds)


def _words(asked: Asked, extent: Extent) -> str:
    if asked.generate is not None:
        recipe = Recipe.parse(asked.generate)
        words = f"{counted(recipe.notebooks, 'generated notebook')} over {format_seconds(recipe.length_s)}"
        words += f", seed {asked.seed}, request {_size(asked.request)}, limit {_size(asked.limit)}"
    else:
        path = asked.workload or asked.journal
        words = f"The workload {path.name}" if path is not None else ""
        rows = [counted(extent.sessions, "session"), counted(extent.cells, "cell")]
        rows += [counted(extent.commands, "command")] if extent.commands else []
        words += f": {', '.join(rows)} in {duration(extent.length_s)}"
    if asked.commands_per_day:
        words += f", {asked.commands_per_day:g} commands a day"
    if asked.requests_by != 1.0:
        words += f", requests times {asked.requests_by:g}"
    return words + (f", {counted(asked.more_users, 'more user')}" if asked.more_users else "")


def _size(size: float | int) -> str:
    return f"{size:g}" if isinstance(size, float) else f"{size / 2**30:g} GiB"
