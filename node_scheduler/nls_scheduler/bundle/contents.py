"""The parts of a bundle, each masked, and the file that says what is in it. Blocking calls; changes nothing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler import __version__
from nls_scheduler.bundle.masking import Mask
from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.daemon import config
from nls_scheduler.daemon import journal_tables as tables
from nls_scheduler.daemon.journal_steps import last_step_at, read_steps
from nls_scheduler.daemon.journal_tables import JournalError
from nls_scheduler.daemon.state_folder import JOURNAL_NAME
from nls_scheduler.wire import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState

    Step = tuple[NodeState | None, Event, tuple[Command, ...] | None, float]

EXCERPT_S: Final = 3600.0
LOG_BYTES: Final = 200_000
SYSTEM_STATE: Final = Path("/var/lib/nls")
_JOURNALCTL: Final = ("journalctl", "--unit", "nls", "--lines", "1000", "--no-pager", "--output", "short-iso")
_PACKAGES: Final = re.compile(
    r"nls|jupyter|ipy|pyzmq|tornado|traitlets|notebook|nb|cupy|cuda|nvidia|torch|jax|tensorflow|numpy"
)
_README: Final = """What nls doctor --bundle has put together, for whoever is to look at a problem.

{parts}

Names of users, workloads, queues, variables and of the machine, folders, and every word that is not one of nls's own,
are replaced by name-XXXXXXXX: the same name by the same word in all of these files, and by another one in the next
bundle. The ids of users are replaced as well. No variables' values, no cells, no environment beside NLS_... and no keys
are in it.

Please look into it before you pass it on: you know best what is nobody's business.
"""


class Parts:
    """What is known of this node, and what cannot be had, with the reason.

    Arguments:
        place: the socket of the daemon, or where one would be.
        state_dir: its folder as given on the command line.
        answers: what the daemon says, by name; a text where it could not be asked.
        findings: those of the doctor.
    """

    def __init__(
        self, place: Path, state_dir: Path | None, answers: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]
    ) -> None:
        self.place = place
        self.state_dir = state_dir or _state_folder(place)
        self.answers = answers
        self.findings = findings
        self.mask = Mask(_names_of_this_machine())
        self.told: list[str] = []

    def write(self, file: Path, environ: Mapping[str, str]) -> str:
        """Make the zip, and return what it says about itself. Raises OSError."""
        steps, settings = self._steps(), self._settings(environ)
        for known in (*self.answers.values(), *(encode(snapshot) for snapshot, *_ in steps if snapshot is not None)):
            self.mask.learn_from(known)
        for _, event, _, _ in steps:
            self.mask.learn_from(encode(event))
        # Whatever happens while it is made, no half of it is left; and nobody else reads it.
        unfinished = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as target:
            try:
                with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                    about = self._fill(archive, steps, settings)
                unfinished.rename(file)
            except BaseException:
                unfinished.unlink()
                raise
        return about

    def _fill(self, archive: zipfile.ZipFile, steps: list[Step], settings: dict[str, Any]) -> str:
        def add(name: str, about: str, content: Callable[[], str | bytes | None]) -> None:
            try:
                made = content()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one part, the others are needed
                self.told.append(f"no {name}: {self.mask.text(f'{type(error).__name__}: {error}')}")
                return
            if made is not None:
                archive.writestr(name, made)
                self.told.append(f"{name}: {about}")

        def masked(value: Any) -> Callable[[], str]:
            return lambda: _json(self.mask.value(value))

        add("doctor.json", "what nls doctor says", masked(self.findings))
        add("versions.json", "of Python, Linux and packages", lambda: _json(versions()))
        add(
            "settings.json",
            "of the daemon, where they are not the usual ones",
            lambda: _json({key: self.mask.value(value, key) for key, value in settings.items()}),
        )
        for name, answer in self.answers.items():
            add(f"{name}.json", f"what nls {name} says", masked(answer))
        if steps:
            add(JOURNAL_NAME, f"the last {len(steps)} steps, for nls replay", lambda: self._excerpt(steps))
        add(locate.LOG_NAME, "the end of the daemon's log", self._log)
        about = _README.format(parts="\n".join(f"- {part}" for part in self.told))
        archive.writestr("README.txt", about)
        return about

    def _steps(self) -> list[Step]:
        """From the last snapshot before the last hour on."""
        path = self.state_dir / JOURNAL_NAME
        try:
            return list(read_steps(path, last_step_at(path) - EXCERPT_S, whole=True))
        except (JournalError, OSError) as error:
            self.told.append(f"no {JOURNAL_NAME}: {self.mask.text(str(error))}")
            return []

    def _excerpt(self, steps: list[Step]) -> bytes:
        def masked(value: Any) -> Any:
            return decode(self.mask.value(encode(value)))

        with tempfile.TemporaryDirectory(prefix="nls-bundle-") as folder:
            path = Path(folder) / JOURNAL_NAME
            with closing(tables.connected(path)) as database:
                with database:
                    for snapshot, event, commands, wall in steps:
                        if snapshot is not None:
                            tables.write_snapshot(database, masked(snapshot), wall)
                        tables.write_event(database, masked(event), masked(commands), wall)
                database.execute("PRAGMA journal_mode = DELETE")
            return path.read_bytes()

    def _log(self) -> str | None:
        path = self.place.with_name(locate.LOG_NAME)
        if path.exists():
            content = path.read_bytes()[-LOG_BYTES:]
        elif self.place == locate.SYSTEM_SOCKET and shutil.which(_JOURNALCTL[0]):
            content = subprocess.run(_JOURNALCTL, capture_output=True, timeout=20, check=True).stdout[-LOG_BYTES:]
        else:
            return None
        return "\n".join(map(self.mask.text, content.decode("utf-8", "replace").splitlines()))

    def _settings(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """What differs from the usual, unmasked; whose names are in it is known from then on."""
        found: dict[str, Any] = {name: value for name, value in environ.items() if name.startswith("NLS_")}
        self.mask.learn([found.get("NLS_QUEUE", "")])
        try:
            section = dict(config.read_files(config.places()).get(config.SECTION, {}))
        except config.ConfigError as error:
            return found | {config.SECTION: str(error)}
        # The names of queues and pools are their keys.
        self.mask.learn(str(name) for key in ("queues", "pools") for name in section.get(key, {}))
        self.mask.learn_from(section)
        return found | {config.SECTION: section}


def _state_folder(place: Path) -> Path:
    """Beside the socket, as where root has started the system daemon by hand; else that of its unit."""
    beside = place.parent
    return SYSTEM_STATE if place == locate.SYSTEM_SOCKET and not (beside / JOURNAL_NAME).exists() else beside


def versions() -> dict[str, Any]:
    """Of what matters here; nothing of it is anybody's."""
    packages = {d.name: d.version for d in importlib.metadata.distributions() if _PACKAGES.match(d.name.lower())}
    return {
        "nls-jupyter": __version__,
        "python": sys.version,
        "system": {"kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())},
        "packages": dict(sorted(packages.items())),
    }


def _names_of_this_machine() -> set[str]:
    host = socket.gethostname()
    people = [entry for entry in pwd.getpwall() if entry.pw_uid >= 1000 or entry.pw_uid == os.getuid()]
    homes = [*(entry.pw_dir for entry in people), os.path.expanduser("~")]  # noqa: PTH111 - pathlib raises without one
    names = {entry.pw_name for entry in people} | {Path(home).name for home in homes}
    return (names | {host, host.partition(".")[0]}) - {"root", "nobody", "nonexistent"}


_json: Callable[[Any], str] = json.JSONEncoder(indent=2).encode
