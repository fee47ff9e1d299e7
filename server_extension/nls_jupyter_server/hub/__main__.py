"""Started by JupyterHub, which says where to listen."""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import urlparse


async def main() -> None:
    """Until the hub ends it."""
    from nls_jupyter_server.hub.service import application

    address = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
    application().listen(address.port or 80, address.hostname or "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    if "JUPYTERHUB_SERVICE_URL" not in os.environ:
        sys.exit("JupyterHub starts this, as a service with a url: see docs/jupyterhub.md.")
    asyncio.run(main())
