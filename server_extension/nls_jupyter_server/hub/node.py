"""What the service knows of the node: as the daemon tells it to the service, or to one user of this machine."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tornado.escape import json_decode

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

KEPT_S: Final = 2.0
"""So long an answer is given again: many open pages ask the daemon no more often than one."""


class NotShownError(Exception):
    """Nothing can be shown; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is shown. `own_uid`: only that user's workloads; `None`: everybody's, and what happened."""

    status: dict[str, Any]
    history: list[dict[str, Any]]
    own_uid: int | None


class Node:
    """Asks the daemon for everybody who looks. Raises NotShownError."""

    def __init__(self, socket: Path | None, system_user: str) -> None:
        """`system_user`: what a user of the hub is called on this machine, with `{username}`, as its spawner has it."""
        self._socket = socket
        self._system_user = system_user
        self._answers: dict[int | None, tuple[float, asyncio.Future[Seen]]] = {}

    async def for_administrator(self) -> Seen:
        """All of the node, as far as the daemon tells it to this service's own user."""
        return await self._kept(None, self._as_service)

    async def for_user(self, name: str) -> Seen:
        """What the daemon tells the user of that name."""
        user = self._user(name)
        return await self._kept(user.pw_uid, lambda: self._as_user(user))

    def _user(self, name: str) -> pwd.struct_passwd:
        called = self._system_user.replace("{username}", name)
        try:
            user = pwd.getpwnam(called)
        except KeyError:
            raise NotShownError(f"This machine has no user {called!r}: your servers run under another name.") from None
        if user.pw_uid == 0:
            raise NotShownError("What root may see is shown to the hub's administrators only.")
        if os.geteuid() not in (0, user.pw_uid):
            raise NotShownError("This page may not ask in your name; JupyterLab's GPU panel shows what is yours.")
        return user

    async def _kept(self, whose: int | None, ask: Callable[[], Awaitable[Seen]]) -> Seen:
        at, answer = self._answers.get(whose, (0.0, None))
        if answer is None or (answer.done() and time.monotonic() - at > KEPT_S):
            answer = asyncio.ensure_future(ask())
            self._answers[whose] = (time.monotonic(), answer)
        return await asyncio.shield(answer)

    async def _as_service(self) -> Seen:
        try:
            client = await DaemonClient.connect(self._socket, may_start=False)
            return Seen(await client.status(), await client.history(), None)
        except (DaemonUnreachable, Problem) as error:
            raise NotShownError(str(error)) from error

    async def _as_user(self, user: pwd.struct_passwd) -> Seen:
        words = [sys.executable, "-m", "nls_jupyter_server.hub.asked_as", str(user.pw_uid), str(user.pw_gid)]
        words += [] if self._socket is None else ["--socket", str(self._socket)]
        pipe = asyncio.subprocess.PIPE
        asking = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        told, why = await asking.communicate()
        if asking.returncode != 0:
            last = why.decode(errors="replace").strip().rpartition("\n")[2]
            raise NotShownError(last or "The daemon could not be asked in your name.")
        return Seen(json_decode(told), [], user.pw_uid)
