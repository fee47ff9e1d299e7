"""What a kubelet sets on the whole machine is as it was when no cluster of `one_node_cluster.py` is left."""

from __future__ import annotations

import contextlib
import fcntl
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMES: Final = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_OF_KEYS: Final = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
SYSCTLS: Final = tuple(Path("/proc/sys") / name for name in (*_NAMES, *_OF_KEYS))
NOTED: Final = Path("/run/one-node-cluster.json")


@contextlib.contextmanager
def settings_kept(paths: Sequence[Path], noted: Path = NOTED) -> Iterator[None]:
    """When no cluster is left, these have the values that they had before the first of them.

    `noted`: where these values are meanwhile, and stay if a cluster is killed. A lock on it says: somebody is there.
    """
    with noted.open("a+") as file:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not noted.stat().st_size:
                file.write(json.dumps({str(path): path.read_text() for path in paths if path.exists()}))
                file.flush()
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path, value in json.loads(noted.read_text()).items():
                    Path(path).write_text(value)
                file.truncate(0)
