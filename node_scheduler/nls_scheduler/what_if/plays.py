"""Plays a scenario under policies: several at once, with their progress, and what is done where somebody stops it."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.what_if.play.figures import Figures
from nls_scheduler.what_if.play.stage import Stage
from nls_scheduler.what_if.policies import policy_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from nls_scheduler.what_if.scenario import Scenario
    from nls_scheduler.what_if.workload_file.rows import Extent

OURS_WEIGHT: Final = 50.0
"""How much longer a play of the daemon's own `step` takes than one of another policy, about."""
_LOOKS_S: Final = 0.5
_TOLD_EVERY: Final = 32
"""Things that happen in a play."""
_PARTS: Final = 4096
_STOP: Final = _PARTS


class _HopelessError(Exception):
    """It can no longer become what is asked of it."""


@dataclass(frozen=True, slots=True)
class Play:
    """One policy in one scenario.

    Attributes:
        more_seed: added to a recipe's seed.
        extent: of the scenario's rows, where somebody has read them already.
        bearable: it is given up as hopeless once more than this part of all cells had no Gpu within a second.
    """

    scenario: Scenario
    policy: str
    more_seed: int = 0
    extent: Extent | None = None
    bearable: float = 1.0

    @property
    def weight(self) -> float:
        """About how long it takes, as a part of all."""
        return OURS_WEIGHT if self.policy.startswith("nls") else 1.0


def play_one(play: Play, told: Callable[[float], None] = lambda _: None) -> Figures:
    """Plays it to its end, or until Ctrl-C: what was counted by then has `whole` false.

    `told` hears which part of the workload's time is over. Raises WorkloadFileError.
    """
    extent = play.extent or play.scenario.extent(play.more_seed)
    figures = Figures(extent.begin_s, extent.length_s, play.scenario.node.gpus)
    stage = Stage(play.scenario.node.gpus, play.scenario.node.gpu_bytes, play.scenario.costs, figures)
    policy = policy_named(play.policy, stage, play.scenario.rules)

    happened = count()

    def tell(now: float) -> None:
        if next(happened) % _TOLD_EVERY == 0:
            if figures.late > play.bearable * extent.cells:
                raise _HopelessError
            told(min(1.0, (now - extent.begin_s) / max(extent.length_s, 1e-9)))

    try:
        stage.play(policy, play.scenario.rows(play.more_seed), tell)
    except KeyboardInterrupt:
        figures.whole = False
    except _HopelessError:
        figures.whole = True  # what is asked of it is known
    return figures


class Crew:
    """Processes that play, as many as there are cores. Use as a context manager; a play's order says nothing."""

    progress: Callable[[float], None]
    """Hears now and then which part of what was asked for is done, by weight."""

    def __init__(self, at_once: int | None = None) -> None:
        """`at_once`: so many processes; 1: none but this one, as for what takes less than their start."""
        self._at_once = at_once or os.cpu_count() or 1
        self.progress = lambda _: None
        self._executor: ProcessPoolExecutor | None = None
        self._shares: Any = None
        self._before: Any = signal.SIG_DFL
        self.stopped = False

    def __enter__(self) -> Crew:
        context = get_context("spawn")
        self._shares = context.Array("d", _PARTS + 1, lock=False)
        if self._at_once > 1:
            self._executor = ProcessPoolExecutor(self._at_once, context, _begin, (self._shares,))
        self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._shares[_STOP] = 1.0
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _interrupted(self, *_: object) -> None:
        """Ctrl-C: those that play see the flag at their next look at it. Who asks twice does not want to wait."""
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
        self._shares[_STOP] = 1.0

    def all_of(self, plays: Sequence[Play]) -> Iterator[tuple[Play, Figures]]:
        """Each as soon as it has ended. After Ctrl-C those that were under way, as far as they came, and no more."""
        if self._executor is None:
            yield from self._one_after_another(plays)
            return
        waiting: dict[Future[Figures], Play] = {}
        with _uninterrupted():
            for number, play in enumerate(plays):
                self._shares[number % _PARTS] = 0.0
                waiting[self._executor.submit(_play, play, number % _PARTS)] = play
        total = sum(play.weight for play in plays)
        numbers = {future: number for number, future in enumerate(waiting)}
        left = dict(waiting)
        while left:
            if self.stopped:
                left = {future: play for future, play in left.items() if not future.cancel()}
            done, _ = wait(left, _LOOKS_S, FIRST_COMPLETED) if left else ((), ())
            for future in sorted(done, key=numbers.__getitem__):
                play = left.pop(future)
                yield play, _result(future)
            parts = (p.weight * (self._shares[numbers[f]] if f in left else 1.0) for f, p in waiting.items())
            if not self.stopped:  # what was stopped is never done
                self.progress(sum(parts) / total)

    def _one_after_another(self, plays: Sequence[Play]) -> Iterator[tuple[Play, Figures]]:
        total, done = sum(play.weight for play in plays), 0.0
        for play in plays:
            if self.stopped:
                return
            yield play, play_one(play, self._hears(done, play.weight, total))
            done += play.weight
            if not self.stopped:
                self.progress(done / total)

    def _hears(self, done: float, weight: float, total: float) -> Callable[[float], None]:
        def told(part: float) -> None:
            self.progress((done + part * weight) / total)
            if self.stopped:
                raise KeyboardInterrupt

        return told


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that begin meanwhile never hear an interrupt, which terminals send to all; this one hears it then."""
    resource_tracker.ensure_running()  # where it has to begin it lifts the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(future: Future[Figures]) -> Figures:
    try:
        return future.result()
    except BrokenProcessPool:
        raise ChildProcessError(
            "A process that played was ended from outside, perhaps because memory was short: there is no result."
        ) from None


_shares: Any = None


def _begin(shares: Any) -> None:
    """In each process, which ends with the one that began it."""
    global _shares
    _shares = shares
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _play(play: Play, number: int) -> Figures:
    def told(part: float) -> None:
        _shares[number] = part
        if _shares[_STOP]:
            raise KeyboardInterrupt

    return play_one(play, told)


class Estimate:
    """How long all of it still takes, from which part is done; says nothing before it can know."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    def left_s(self, part: float) -> float | None:
        """Seconds; `None`: too early to say."""
        spent_s = self._clock() - self._began
        return spent_s * (1 - part) / part if part > 0.01 and spent_s > 1 else None
