"""What the kernel and its GPU process share beside messages: a socket for files, and words in memory."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from nls_jupyter.between import lane, state_socket
from nls_jupyter.between.begun import BegunCell
from nls_jupyter.between.restoring import RestoredComponent
from nls_jupyter.between.save_stops import SaveStops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Shares:
    """The kernel's ends. Raises OSError where they cannot be opened.

    Attributes:
        states: for the files of saved state.
        lane: for messages.
        begun: which cell the process began last.
        stops: which saves are to stop.
        restored: which component of the saved state the process brings back.
        environment: says to the process where its ends are.
        pass_fds: which the process has to inherit.
    """

    def __init__(self) -> None:
        with ExitStack() as opened:  # where the next one cannot be opened, those before are closed
            self.begun = opened.enter_context(closing(BegunCell.create()))
            self.stops = opened.enter_context(closing(SaveStops.create()))
            self.restored = opened.enter_context(closing(RestoredComponent.create()))
            self.states, states = state_socket.StateSocket.pair()
            for end in (self.states, states):
                opened.callback(end.close)
            self.lane, its_lane = lane.Lane.pair()
            opened.pop_all()
        self._inherited = states, its_lane
        self.environment: Mapping[str, str] = {
            state_socket.VARIABLE: str(states.fileno()),
            lane.VARIABLE: str(its_lane.fileno()),
            BegunCell.variable: str(self.begun.descriptor),
            SaveStops.variable: str(self.stops.descriptor),
            RestoredComponent.variable: str(self.restored.descriptor),
        }
        self.pass_fds: Sequence[int] = tuple(map(int, self.environment.values()))

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """While the process is started; if that fails, nothing stays open."""
        try:
            yield
        except BaseException:
            self.states.close()
            self.lane.close()
            self.close()
            raise
        finally:
            for end in self._inherited:
                end.close()

    def close(self) -> None:
        """Let go of all but the sockets, which whoever reads them closes. Idempotent."""
        self.begun.close()
        self.stops.close()
        self.restored.close()
