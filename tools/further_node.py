"""Further nodes of `one_node_cluster.py`: each a containerd and a kubelet in a mount namespace of its own.

A node has /run, /var/lib and /var/log of its own, and shares with the first one what is the machine's: processes, the
network and all other files, which is where a volume can be that both see. It has NVIDIA's taint, so that the scheduler
places nothing there that does not ask for it.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from node_settings import containerd, kubelet

if TYPE_CHECKING:
    from pathlib import Path

    from node_settings import Place

_OWN = "mount --bind $0/var-lib /var/lib; mount --bind $0/var-log /var/log; mount -t tmpfs -o mode=0755 tmpfs /run"
_HELD = f"set -e; {_OWN}; touch $0/mounted; exec sleep infinity"


class FurtherNode:
    """One of them. `folder` is its own, and is there."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.pid = 0

    def begin(self, cgroup: str) -> None:
        """Its files and its mounts; `pid` holds these. `cgroup`: of its pods."""
        for name in ("var-lib", "var-log", "cni"):
            (self.folder / name).mkdir()
        (self.folder / "cni" / "one-node.conflist").write_text(json.dumps(self.place.cni()))
        (self.folder / "containerd.toml").write_text(containerd(self.folder))
        (self.folder / "kubelet.json").write_text(json.dumps(self.place.kubelet(kubelet(self.folder, cgroup))))
        held = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _HELD, str(self.folder)]
        self.pid = subprocess.Popen(held).pid

    def entered(self, *command: str) -> list[str]:
        """A command there."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "--", *command]

    def options(self, kubeconfig: Path) -> dict[str, list[str]]:
        """Of its services, as the first node's: `containerd-NODE` and `kubelet-NODE`."""
        name = self.place.name
        return {
            f"containerd-{name}": [f"--config={self.folder / 'containerd.toml'}"],
            f"kubelet-{name}": [
                f"--config={self.folder / 'kubelet.json'}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={name}",
                f"--node-ip={self.place.address}",
            ],
        }
