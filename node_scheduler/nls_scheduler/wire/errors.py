"""What goes wrong, told as problem objects (RFC 9457): who is at fault and what to do next."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Fault = Literal["client", "server", "node"]
CONTENT_TYPE: Final = "application/problem+json"
WITHOUT_GPU: Final = "To try it out without one, start a daemon with simulated GPUs: nls up --simulate 2x16GiB"
_FIELDS: Final = {"status": int, "title": str, "detail": str, "fault": str}


class Problem(Exception):  # noqa: N818 - RFC 9457's own word, on the wire too
    """One refusal or failure, as the daemon answers it and as the client raises it.

    Attributes:
        status: HTTP status.
        title: the kind of problem in a few words, the same for each of its kind.
        detail: one sentence for the user that says what to do.
        fault: whose mistake it is: the caller's, the daemon's, or the node's (no Gpu, a driver that fails).
        retry_after_s: when to try again, the answer's header `Retry-After`; `None`: time alone does not help.
    """

    def __init__(
        self, status: int, title: str, detail: str, fault: Fault = "client", *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.fault: Fault = fault
        self.retry_after_s = retry_after_s

    def as_dict(self) -> dict[str, Any]:
        """The problem object."""
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "fault": self.fault,
        }

    def as_json(self) -> str:
        """The problem object as text, for a body of type `CONTENT_TYPE`."""
        return json.dumps(self.as_dict())

    @classmethod
    def from_dict(cls, fields: object) -> Problem:
        """A problem object read back by the client. Raises ValueError when `fields` is none."""
        if not isinstance(fields, dict) or any(
            not isinstance(fields.get(key), type_) for key, type_ in _FIELDS.items()
        ):
            raise ValueError("A problem object has a status, a title, a detail and a fault.")
        if fields["fault"] not in get_args(Fault):
            raise ValueError("A problem object says who is at fault.")
        return cls(fields["status"], fields["title"], fields["detail"], fields["fault"])


def problem_in(status: int, body: bytes, headers: Mapping[str, str]) -> Problem:
    """The problem object in an HTTP answer, or one that says that there was none."""
    try:
        problem = Problem.from_dict(json.loads(body))
    except ValueError:
        detail = f"The daemon answered {status} without saying why: see its log."
        return Problem(status, "Error", detail, "server")
    retry_after = headers.get("Retry-After", "")
    if retry_after.isascii() and retry_after.isdecimal():
        problem.retry_after_s = int(retry_after)
    return problem


class DaemonUnreachable(Exception):  # noqa: N818 - named for what the user reads: the daemon is unreachable
    """No daemon answers; the message is one sentence that says what to do. Raised by the client only.

    Attributes:
        may_come: a daemon is to be there, or was a moment ago: whoever waits may ask the same again.
        awaited: whom one waits for then, as the begin of a sentence.
    """

    def __init__(self, message: str, *, may_come: bool = False, awaited: str = "") -> None:
        super().__init__(message)
        self.may_come = may_come
        self.awaited = awaited or "the node's daemon does not answer"


def out_of_files(error: BaseException) -> DaemonUnreachable | None:
    """What to say where this process could open nothing to ask a daemon with, which may be well; `None`: it could."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    return DaemonUnreachable(
        "The node's daemon cannot be asked, as this process can open no more files: close some, or raise the limit "
        "(ulimit -n)."
    )


def malformed(detail: str) -> Problem:
    """The caller sent something that cannot be read."""
    return Problem(400, "Malformed request", detail)


def impossible(detail: str) -> Problem:
    """The caller asks for something that this node can never give."""
    return Problem(422, "Request cannot be met", detail)


def unknown_workload(workload_id: str) -> Problem:
    """There is no such workload (any more)."""
    detail = f"There is no workload {workload_id!r} on this node: `nls status` lists those there are."
    return Problem(404, "No such workload", detail)


def unknown_gpu(name: str) -> Problem:
    """There is no such Gpu, or it has vanished."""
    return Problem(
        404, "No such GPU", f"There is no GPU {name!r:.100} on this node: `nls status` lists those there are."
    )
