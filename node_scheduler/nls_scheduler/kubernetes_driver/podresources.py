"""Which devices the kubelet gave to whom: its podresources socket (gRPC, v1). Read only.

The messages are described here and not generated: the fields that are read, as the kubelet's api.proto numbers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from nls_scheduler.kubernetes_driver.quantities import is_gpu_resource
from nls_scheduler.kubernetes_driver.resource_slices import DRIVER, device_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
METHOD: Final = "/v1.PodResourcesLister/List"
_TIMEOUT_S: Final = 5.0
_ANSWER_LIMIT_BYTES: Final = 32 * 2**20
_TEXT, _MESSAGE = 9, 11
# message: (field, number, type, message of the field); all repeated but texts that are marked by `one`.
_MESSAGES: Final[Mapping[str, tuple[tuple[str, int, str, bool], ...]]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", True),),
    "PodResources": (
        ("name", 1, "", False),
        ("namespace", 2, "", False),
        ("containers", 3, "ContainerResources", True),
    ),
    "ContainerResources": (
        ("name", 1, "", False),
        ("devices", 2, "ContainerDevices", True),
        ("dynamic_resources", 5, "DynamicResource", True),
    ),
    "ContainerDevices": (("resource_name", 1, "", False), ("device_ids", 2, "", True)),
    "DynamicResource": (
        ("claim_name", 2, "", False),
        ("claim_namespace", 3, "", False),
        ("claim_resources", 4, "ClaimResource", True),
    ),
    "ClaimResource": (("driver_name", 2, "", False), ("pool_name", 3, "", False), ("device_name", 4, "", False)),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="nls_podresources.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, of, repeated in fields:
            described = message.field.add(name=field, number=number, label=3 if repeated else 1)
            described.type = _MESSAGE if of else _TEXT
            if of:
                described.type_name = f".v1.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _MESSAGES}


MESSAGES: Final = _classes()


class KubeletError(Exception):
    """The kubelet does not answer, or its answer cannot be read."""


class PodResources:
    """The kubelet's allocations. Lives in the daemon's loop."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._connect()

    def _connect(self) -> None:
        """Anew after each failure: a channel that has failed for long waits for two minutes before it tries again."""
        options = [
            ("grpc.max_receive_message_length", _ANSWER_LIMIT_BYTES),
            ("grpc.default_authority", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),  # the one of the channel before waits
        ]
        self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=options)
        # What comes is decoded here: gRPC makes nothing of an answer that it cannot decode.
        self._list = self._channel.unary_unary(METHOD, request_serializer=lambda message: message.SerializeToString())

    async def allocations(self) -> dict[str, tuple[str, ...]]:
        """Devices by `namespace/name` of the pod, pods without any left out. Raises KubeletError.

        A device of the device plugin is its UUID, as often as the pod has it: a GPU that is given in turns may be
        several of them. One of a claim is its `resource_slices.device_id`.
        """
        try:
            told = await self._list(MESSAGES["ListPodResourcesRequest"](), timeout=_TIMEOUT_S)
            answer = MESSAGES["ListPodResourcesResponse"].FromString(told)
        except DecodeError as error:
            raise KubeletError(f"what the kubelet says of its devices cannot be read ({self._socket})") from error
        except grpc.aio.AioRpcError as error:
            await self._channel.close()
            self._connect()
            raise KubeletError(
                f"the kubelet does not say which devices it gave ({self._socket}): {error.details()}"
            ) from error
        found: dict[str, list[str]] = {}
        for pod in answer.pod_resources:
            # A pod that ends may still be there beside the next one of its name.
            found.setdefault(f"{pod.namespace}/{pod.name}", []).extend(d for c in pod.containers for d in _devices(c))
        # A device that is shared in turns has an id with a suffix (`GPU-…::3`) that is no part of its UUID.
        return {
            key: tuple(each.partition("::")[0] for each in dict.fromkeys(devices))
            for key, devices in found.items()
            if devices
        }

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def _devices(container: Any) -> list[str]:
    """Device plugin first, then DRA.

    A resource may have any name (the device plugin's `rename`): what has a GPU's UUID is one.
    """
    found = []
    for devices in container.devices:
        known = is_gpu_resource(devices.resource_name)
        found += [each for each in devices.device_ids if known or each.startswith(("GPU-", "MIG-"))]
    for dynamic in container.dynamic_resources:
        claimed = [each for each in dynamic.claim_resources if each.driver_name == DRIVER]
        found += [device_id(each.pool_name, each.device_name) for each in claimed]
    return found
