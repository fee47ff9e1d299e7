"""All supervisors that are connected, and what each was shown last. Used in the daemon's loop only."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from nls_scheduler.views.kept import MadeOf, made_of, of_node
from nls_scheduler.views.sentences import Names
from nls_scheduler.views.status import workload_view
from nls_scheduler.wire.protocol import CLOSE_ENDED, CLOSE_REPLACED, as_close_reason

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import WorkloadCommand
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.daemon.sessions import Session
    from nls_scheduler.views.veil import Access, Viewer


class Connected:
    """One session for each workload whose supervisor is here."""

    def __init__(self) -> None:
        self._sessions: dict[WorkloadId, Session] = {}
        self._shown: dict[WorkloadId, MadeOf] = {}
        self._of_node: MadeOf = ()

    def __contains__(self, workload: WorkloadId) -> bool:
        """Whether its supervisor is here."""
        return workload in self._sessions

    def __len__(self) -> int:
        """How many are here."""
        return len(self._sessions)

    def add(self, session: Session) -> None:
        """It takes the place of an earlier one of its workload."""
        before = self._sessions.get(session.workload)
        self._sessions[session.workload] = session
        self._shown.pop(session.workload, None)
        if before is not None:
            before.close(CLOSE_REPLACED, "another supervisor of this workload has connected")

    def remove(self, session: Session) -> bool:
        """Whether it was here still."""
        if self._sessions.get(session.workload) is not session:
            return False
        del self._sessions[session.workload]
        self._shown.pop(session.workload, None)
        return True

    def end(self, workload: WorkloadId, why: str) -> None:
        """The workload has ended, as somebody said, or by itself: `why` is empty. Idempotent."""
        session = self._sessions.pop(workload, None)
        self._shown.pop(workload, None)
        if session is not None:
            session.close(CLOSE_ENDED, as_close_reason(why))

    def order(self, command: WorkloadCommand) -> None:
        """Send `command`; one whose supervisor is not here gets it when it comes."""
        session = self._sessions.get(command.workload)
        if session is not None:
            session.order(command)

    def show(self, state: NodeState, now: float, access: Access) -> None:
        """Everybody its workload at `now`, if anything that is told of it has changed: mostly of one or two it has."""
        node = (*of_node(state), access)
        self._of_node = self._of_node if node == self._of_node else node
        names: dict[Viewer, Names] = {}
        for key, session in self._sessions.items():
            workload = state.workloads.get(key)
            if workload is None:
                continue
            parts, shown = (*made_of(state, workload), self._of_node), self._shown.get(key)
            # How long its user still keeps it is told by the clock.
            if shown is not None and all(map(is_, parts, shown)) and workload.keep_until is None:
                continue
            viewer = viewer_of(session.peer, access)
            known = names.setdefault(viewer, Names.of(state, viewer))
            if session.show(workload_view(state, workload, now, known), now):
                self._shown[key] = parts
            else:
                self._shown.pop(key, None)


def viewer_of(peer: Peer, access: Access) -> Viewer:
    """Who reads what is shown to `peer`."""
    return access.viewer(peer.uid, peer.tenant, administrator=peer.administrator)
