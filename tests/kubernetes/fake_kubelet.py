"""A podresources socket that speaks the real gRPC and says what a test tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import grpc

from nls_scheduler.kubernetes_driver.podresources import MESSAGES, METHOD

if TYPE_CHECKING:
    from pathlib import Path


_GARBAGE = b"\xff\xff\xff\xff is no ListPodResourcesResponse"


class FakeKubelet:
    """Use as a context manager.

    Attributes:
        allocations: devices by `namespace/name`.
        claims: DRA device names by the same.
        ending: devices of another pod of that name.
        apart: each device has an entry of its own, as those of different NUMA nodes have.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.allocations: dict[str, list[str]] = {}
        self.claims: dict[str, list[str]] = {}
        self.ending: dict[str, list[str]] = {}
        self.apart = False
        self.resource = "nvidia.com/gpu"
        self.failing = False
        self.garbled = False
        self.calls = 0

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(2)
        self._server = grpc.server(self._pool)
        handler = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=MESSAGES["ListPodResourcesRequest"].FromString,
            response_serializer=lambda message: _GARBAGE if self.garbled else message.SerializeToString(),
        )
        service, method = METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()
        self._pool.shutdown()
        self.socket.unlink(missing_ok=True)

    def _list(self, _request: Any, context: Any) -> Any:
        self.calls += 1
        if self.failing:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the kubelet restarts")
        answer = MESSAGES["ListPodResourcesResponse"]()
        told = [(key, self.allocations.get(key, [])) for key in sorted({*self.allocations, *self.claims})]
        for key, devices in (*told, *self.ending.items()):
            namespace, name = key.split("/")
            pod = answer.pod_resources.add(name=name, namespace=namespace)
            container = pod.containers.add(name="main")
            for ids in [[device] for device in devices] if self.apart else filter(None, [devices]):
                container.devices.add(resource_name=self.resource, device_ids=ids)
            container.devices.add(resource_name="rdma/hca", device_ids=["mlx5_0"])
            for device in self.claims.get(key, []):
                dynamic = container.dynamic_resources.add(claim_name="gpu", claim_namespace=namespace)
                dynamic.claim_resources.add(driver_name="gpu.nvidia.com", pool_name="node-a", device_name=device)
        return answer
