"""Started by JupyterHub, which says where to listen."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final
from urllib.parse import urlparse

LOOKED_EVERY_S: Final = 0.5


async def main() -> None:
    """Until the hub ends it, or has been killed: the next hub starts one of its own, at the same address."""
    from nls_jupyter_server.hub.service import application

    address = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
    application().listen(address.port or 80, address.hostname or "127.0.0.1")
    hub = os.getppid()
    while os.getppid() == hub:  # noqa: ASYNC110 - nobody tells of that
        await asyncio.sleep(LOOKED_EVERY_S)


if __name__ == "__main__":
    if "JUPYTERHUB_SERVICE_URL" not in os.environ:
        sys.exit("JupyterHub starts this, as a service with a url: see docs/jupyterhub.md.")
    asyncio.run(main())
