"""What is written for the services of a node: where it is, who it is, and how its containers are run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ADDRESS: Final = "10.96.0.1"
URL: Final = f"https://{SERVICE_ADDRESS}"
PAUSE: Final = "docker.io/library/one-node-pause:1"
SOCKET: Final = "/run/containerd/containerd.sock"
PLUGINS: Final = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))


@dataclass(frozen=True, slots=True)
class Place:
    """What is different from node to node: `number` 0 is the first one."""

    number: int

    @property
    def name(self) -> str:
        """As Kubernetes has it."""
        return f"node-{'abcdefgh'[self.number]}"

    @property
    def address(self) -> str:
        """Of its kubelet."""
        return f"10.88.0.{self.number + 1}"

    @property
    def pods(self) -> str:
        """Their addresses."""
        return f"10.89.{self.number}.0/24"

    def cni(self) -> dict[str, object]:
        """A bridge for its pods."""
        addresses = {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": f"cni{self.number}", "isGateway": True, "hairpinMode": True}
        return {"cniVersion": "0.4.0", "name": "one-node", "plugins": [{**bridge, "ipam": addresses}]}

    def kubelet(self, settings: Mapping[str, object]) -> dict[str, object]:
        """`settings` with its addresses, and the taint of a further node."""
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        own: dict[str, object] = {"address": self.address, "healthzBindAddress": self.address}
        return {**settings, **own, **({"registerWithTaints": [taint]} if self.number else {})}


def kubeconfig(certificate: Path, token: str) -> dict[str, object]:
    """Of whoever has `token`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": URL, "certificate-authority": str(certificate)}}],
        "users": [{"name": "one", "user": {"token": token}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }


def containerd(folder: Path) -> str:
    """Containerd 2 reads this version of its settings, too."""
    plugins = next(path for path in PLUGINS if path.exists())
    return f"""
version = 2
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Root may be without the power to lower it.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder / "cni"}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def kubelet(folder: Path, cgroup: str) -> dict[str, object]:
    """Of a node with its files in `folder`; `cgroup`: under which its pods are."""
    never = {"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Nobody else is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "evictionHard": never,
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "volumePluginDir": str(folder / "volume-plugins"),
    }
