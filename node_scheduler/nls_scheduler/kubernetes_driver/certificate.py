"""The certificate that is served: two files of a mounted secret, read again when they change."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_OUT_OF_TIME: Final = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED, of OpenSSL's x509_vfy.h."""
_TURNS: Final = 4
log = logging.getLogger(__name__)


class Certificate:
    """`tls.crt` and `tls.key` of a mounted secret, read again when they change."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError where there is none that could be used."""
        self._directory = directory
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._written = self._load()

    def look(self) -> bool:
        """Whether another one holds from now on. One that cannot be read leaves the old one in place."""
        try:
            if self._stamp() == self._written:
                return False
            self._written = self._load()
        except OSError as error:
            log.warning("the certificate in %s cannot be read, and the old one stays: %s", self._directory, error)
            return False
        log.info("the certificate in %s has been read again", self._directory)
        return True

    @property
    def trouble(self) -> str | None:
        """Why nobody believes it at this moment, as a sentence; `None`: by its dates they may.

        Found out as a client does: no file says what is served.
        """
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._client.wrap_bio(to_client, to_server)
        server = self.context.wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server) * _TURNS:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in _OUT_OF_TIME:
                    return None
                return f"The API server does not believe the certificate in {self._directory}: {error.verify_message}."
        return None

    def _load(self) -> tuple[int, int]:
        stamp = self._stamp()
        # Where they are now: the kubelet changes both at once, and perhaps at this moment.
        certificate, key = ((self._directory / name).resolve() for name in ("tls.crt", "tls.key"))
        # A pair that is none would leave a context without any.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        self.context.load_cert_chain(certificate, key)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname = False
        self._client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        self._client.load_verify_locations(certificate)
        return stamp

    def _stamp(self) -> tuple[int, int]:
        crt, key = ((self._directory / name).stat().st_mtime_ns for name in ("tls.crt", "tls.key"))
        return crt, key
