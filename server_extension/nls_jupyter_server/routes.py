"""The routes below the server's base URL."""

from __future__ import annotations

from typing import Final

from nls_jupyter_server.handlers import ActionHandler, GpuReturnHandler, StatusHandler, WorkloadHandler
from nls_jupyter_server.status_socket import StatusSocket

_ID: Final = r"nls/api/workloads/([^/]+)"
ROUTES: Final = [
    (r"nls/api/status", StatusHandler),
    (r"nls/api/stream", StatusSocket),
    (_ID, WorkloadHandler),
    (rf"{_ID}/(suspend|resume)", ActionHandler),
    (r"nls/api/gpus/([^/]+)/return", GpuReturnHandler),
]
