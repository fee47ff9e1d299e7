"""Addresses to listen on over TCP: how they are written, and the socket of one."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from typing import Final

_MOST_PORT: Final = 65535
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
log = logging.getLogger(__name__)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `0.0.0.0:9475` or `[::]:9475`. Raises ValueError with one sentence for the administrator."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.ip_address(bare)
        number = int(port) if port.isascii() and port.isdecimal() else -1
    except ValueError:
        number = -1
    if not colon or not 0 <= number <= _MOST_PORT or (":" in bare and bare == host):
        raise ValueError(f"{text!r} is no address to listen on: write for example 0.0.0.0:9475 or [::1]:9475.")
    return bare, number


def listen_on(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens there and does not block; `::` is of IPv4, too. Raises OSError.

    Where the machine has no IPv6, `::` is all of its IPv4 addresses, which the log tells.
    """
    if ipaddress.ip_address(host) == ipaddress.IPv6Address("::"):
        listening = _of_both(port, backlog)
    else:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    listening.setblocking(False)  # noqa: FBT003 - it takes no keyword
    return listening


def _of_both(port: int, backlog: int) -> socket.socket:
    why = "no socket here is of both"
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
            why = str(error)
    log.warning("there is no IPv6 on this machine (%s): 0.0.0.0 is listened on in place of [::]", why)
    return socket.create_server(("0.0.0.0", port), backlog=backlog)  # noqa: S104 - what was asked for, as far as it goes
