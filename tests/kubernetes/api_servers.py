"""Which API server the tests of the driver meet: the one that stands in, or a real one where the environment has it.

KUBEBUILDER_ASSETS   a folder with etcd and kube-apiserver, as envtest uses it: both are started
NLS_TEST_KUBECONFIG  a kubeconfig of a cluster that may be thrown away
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from control_plane import ControlPlane
from fake_api_server import FakeApiServer
from real_api_server import RealApiServer, written_kubeconfig

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
KUBECONFIG = os.environ.get("NLS_TEST_KUBECONFIG", "")
REAL = bool(ASSETS or KUBECONFIG)
RESTARTABLE = not KUBECONFIG

ApiServer = FakeApiServer | RealApiServer


class ApiServers:
    """Makes them; a real one is started once. Use as a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._plane: ControlPlane | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._plane = None
        self._stack.close()

    def new(self) -> ApiServer:
        """One without objects; a context manager."""
        if KUBECONFIG:
            return RealApiServer(Path(KUBECONFIG))
        if not ASSETS:
            return FakeApiServer()
        if self._plane is None:
            self._plane = self._stack.enter_context(ControlPlane(Path(ASSETS)))
        plane = self._plane
        path = written_kubeconfig(plane.directory / "administrator", plane.url, str(plane.certificate), plane.token)
        return RealApiServer(path, plane)


SERVERS = ApiServers()
"""Of this run: entered by a fixture of the session (see `conftest`), by a benchmark itself."""
