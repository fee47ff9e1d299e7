"""Prints the daemon's status as another user of this machine sees it. Started by the service, as root or as that user.

All that is imported is imported as root: the user may not be able to read where it lies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import DaemonUnreachable, Problem


def main() -> int:
    """The exit code; what is wrong is one sentence on stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uid", type=int)
    parser.add_argument("gid", type=int)
    parser.add_argument("--socket", type=Path)
    options = parser.parse_args()
    if os.geteuid() != options.uid:
        os.initgroups(pwd.getpwuid(options.uid).pw_name, options.gid)
        os.setresgid(options.gid, options.gid, options.gid)
        os.setresuid(options.uid, options.uid, options.uid)
    try:
        status = asyncio.run(_status(options.socket))
    except (DaemonUnreachable, Problem) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(status))
    return 0


async def _status(socket: Path | None) -> dict[str, Any]:
    client = await DaemonClient.connect(socket, may_start=False)
    return await client.status()


if __name__ == "__main__":
    sys.exit(main())
