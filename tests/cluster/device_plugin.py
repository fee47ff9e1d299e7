"""NVIDIA's device plugin as the kubelet sees it, for simulated GPUs: registers, lists, allocates. Raw gRPC messages."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("var/lib/kubelet/device-plugins")
POD_RESOURCES = Path("var/lib/kubelet/pod-resources/kubelet.sock")
RESOURCE = "nvidia.com/gpu"


def _field(number: int, value: bytes) -> bytes:
    assert len(value) < 128, "lengths of one byte are enough here"
    return bytes([number << 3 | 2, len(value)]) + value


def _texts(message: bytes) -> list[bytes]:
    """Every field, all of which are texts or messages shorter than 128 bytes."""
    found, at = [], 0
    while at < len(message):
        end = at + 2 + message[at + 1]
        found.append(message[at + 2 : end])
        at = end
    return found


class DevicePlugin:
    """Use as a context manager; registers anew whenever the kubelet has started."""

    def __init__(self, uuids: list[str], root: Path = Path("/")) -> None:
        """`root`: of the node's mounts."""
        self._uuids = uuids
        self._over = threading.Event()
        self._folder, self._pod_resources = root / FOLDER, root / POD_RESOURCES
        self._socket = self._folder / "gpus.sock"
        self.registrations = 0

    def __enter__(self) -> Self:
        self._serve()
        self._thread = threading.Thread(target=self._keep_registered)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._server.stop(0).wait()

    def _serve(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        calls = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls),))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def _keep_registered(self) -> None:
        """A kubelet that starts removes every socket of its folder, ours too."""
        known: tuple[int, int] | None = None
        kubelet = self._folder / "kubelet.sock"
        while not self._over.wait(0.2):
            try:
                written = kubelet.stat()
            except FileNotFoundError:
                continue
            # The number alone may be that of the socket before.
            made = written.st_ino, written.st_ctime_ns
            if made == known:
                continue
            if not self._socket.exists():
                self._server.stop(0).wait()
                self._serve()
            request = _field(1, b"v1beta1") + _field(2, b"gpus.sock") + _field(3, RESOURCE.encode())
            with grpc.insecure_channel(f"unix:{kubelet}") as channel:
                try:
                    channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=5)
                except grpc.RpcError:
                    continue
            known = made
            self.registrations += 1

    def _list(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"".join(_field(1, _field(1, uuid.encode()) + _field(2, b"Healthy")) for uuid in self._uuids)
        while context.is_active() and not self._over.wait(0.2):
            pass

    def known(self) -> bool:
        """Whether the kubelet would give these devices: it asks for them a while after it was told of the plugin."""
        try:
            options = [("grpc.default_authority", "localhost")]
            with grpc.insecure_channel(f"unix:{self._pod_resources}", options) as channel:
                told = channel.unary_unary("/v1.PodResourcesLister/GetAllocatableResources")(b"", timeout=5)
        except grpc.RpcError:
            return False
        return all(uuid.encode() in told for uuid in self._uuids)

    def _allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """One answer for each container, with the variable that NVIDIA's runtime reads."""
        answers = []
        for container in _texts(request):
            entry = _field(1, b"NVIDIA_VISIBLE_DEVICES") + _field(2, b",".join(_texts(container)))
            answers.append(_field(1, _field(1, entry)))
        return b"".join(answers)
