"""What the tests do to the node and ask it: kubectl, signals to its services, notebooks in its pods."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlopen

import pytest

from daemon_process import ROOT
from device_plugin import DevicePlugin
from nls_scheduler.demo.jupyter import JupyterServer
from node_image import OTHER, write_node_images
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from signal import Signals

    from nls_scheduler.demo.jupyter import Notebook

GPUS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "12"]
NAME, RESERVATIONS = "node-a", "kai-resource-reservation"
DEPLOY = ROOT / "node_scheduler/deploy/kubernetes"
EXAMPLE = DEPLOY / "examples/third_pod_kind"
NOTEBOOKS = ("alice-0", "bob-0")
PATIENCE_S = 90.0
TOKEN = "story"
WAITS = "nls-wait-for-gpus"
_TAIL, _WORD_S = 4000, 30.0


class OneNode:
    """Use as a context manager. `folder`: of the cluster (see `tools/one_node_cluster.py`)."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder, self._scratch = folder, scratch
        self._archive = scratch / "images.tar"
        self._stack = ExitStack()
        # A thread of its own answers the servers' pings while a test waits, as a browser does: they close after 90 s.
        self._loop = asyncio.new_event_loop()
        self._turning = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        with self._stack:
            self._turning.start()
            self._stack.callback(self._stop_turning)
            write_node_images(self._archive, self._scratch)
            self._import_images("/run")
            self.plugin = self._stack.enter_context(DevicePlugin(GPUS))
            wait_until(lambda: self.get("node", NAME)["status"]["allocatable"].get("nvidia.com/gpu") == "2", PATIENCE_S)
            self.kubectl("label", "node", NAME, "nvidia.com/gpu.present=true", "nvidia.com/gpu.memory=16384")
            self._install()
            self._kept = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def _stop_turning(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._turning.join()
        self._loop.close()

    def _install(self) -> None:
        kinds = os.environ.get("KAI_CRDS")
        if kinds:
            self.kubectl("create", "-f", kinds)
        for name in ("nls-system", "notebooks", "gpu-operator", RESERVATIONS):
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._topologies({NAME: GPUS})
        self.kubectl("apply", "-k", str(DEPLOY / "overlays/kind"))
        wait_until(self.daemon_ready, PATIENCE_S)

    def _import_images(self, run: str) -> None:
        command = ["ctr", "--address", f"{run}/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import"]
        subprocess.run([*command, str(self._archive)], check=True, stdout=subprocess.DEVNULL)

    def _topologies(self, gpus: Mapping[str, list[str]]) -> None:
        written = {"gpuMemory": 16384, "gpuProduct": "SIMULATED"}
        texts = {f"{name}.yml": json.dumps({**written, "gpus": [{"id": u} for u in of]}) for name, of in gpus.items()}
        head = {"name": "nls-topology", "namespace": "nls-system"}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": texts})

    @contextmanager
    def further(self, name: str, *gpus: str) -> Iterator[Path]:
        """A daemon on another node of the cluster, with these GPUs; skips where there is no such node.

        Gives the root of that node's mounts.
        """
        holder = self._folder / "pids" / name
        if not holder.exists():
            pytest.skip(f"this cluster has no {name}: one_node_cluster.py --nodes 3")
        root = Path("/proc", holder.read_text(), "root")
        self._import_images(f"{root}/run")
        self._topologies({NAME: GPUS, name: [*gpus]})
        self.kubectl("label", "node", name, "nvidia.com/gpu.present=true", "nvidia.com/gpu.memory=16384")
        wait_until(lambda: self.daemons_ready(2), PATIENCE_S)
        yield root
        self.kubectl("label", "node", name, "nvidia.com/gpu.present-")
        wait_until(lambda: self.daemons_ready(1), PATIENCE_S)

    # Kubernetes --------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """What it prints."""
        done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def apply(self, written: Mapping[str, Any]) -> None:
        """Create or change an object."""
        self.kubectl("apply", "-f", "-", given=json.dumps(written))

    def get(self, kind: str, name: str, namespace: str = "default") -> Any:
        """An object; `{}`: there is none, or nobody answers."""
        return json.loads(self.kubectl("-n", namespace, "get", kind, name, "-o", "json", check=False) or "{}")

    def running(self, name: str, namespace: str = "notebooks") -> bool:
        """Whether the pod runs."""
        return bool(self.get("pod", name, namespace).get("status", {}).get("phase") == "Running")

    def stands(self, written: dict[str, Any]) -> bool:
        """Whether a pod runs that was applied so; one that the kubelet refuses is made anew, as controllers do.

        A kubelet that has just started counts devices of pods that have gone, and refuses for good.
        """
        name, namespace = written["metadata"]["name"], written["metadata"]["namespace"]
        told = self.get("pod", name, namespace).get("status", {})
        if told.get("reason") == "UnexpectedAdmissionError":
            self.kubectl("-n", namespace, "delete", "pod", name)
            self.apply(written)
        return bool(told.get("phase") == "Running")

    def device(self, name: str, namespace: str = "notebooks", *, check: bool = True) -> str:
        """The GPU of a running pod. Without `check` empty where no kubelet answers for it."""
        asked = ("exec", name, "-c", "main", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
        return self.kubectl("-n", namespace, *asked, check=check).strip()

    def daemon_ready(self) -> bool:
        """Whether the DaemonSet's only pod is."""
        return self.daemons_ready(1)

    def daemons_ready(self, count: int) -> bool:
        """Whether that many of its pods are, and there are no others."""
        told = self.get("daemonset", "nls-scheduler", "nls-system").get("status", {})
        return bool(told.get("numberReady") == told.get("currentNumberScheduled") == count)

    def status(self, node: str = NAME) -> Any:
        """`nls status` in the daemon's pod on that node."""
        chosen = ("-l", "app.kubernetes.io/name=nls-scheduler", f"--field-selector=spec.nodeName={node}")
        there = self.kubectl("-n", "nls-system", "get", "pods", *chosen, "-o", "name", check=False).split()
        asked = ("-n", "nls-system", "exec", *there[:1], "--", "nls", "status", "--json")
        return json.loads(self.kubectl(*asked, check=False) or "{}")

    def history(self) -> list[dict[str, Any]]:
        """`nls history` in the daemon's pod."""
        asked = ("-n", "nls-system", "exec", "daemonset/nls-scheduler", "--", "nls", "history", "--json")
        told: list[dict[str, Any]] = json.loads(self.kubectl(*asked))
        return told

    def seen(self) -> str:
        """What the cluster is like, for whoever reads of a failure."""
        asked = [
            ("get", "nodes,pods", "--all-namespaces", "-o", "wide"),
            ("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"),
            ("-n", "nls-system", "logs", "daemonset/nls-scheduler", "--all-pods", "--prefix", "--tail=100"),
            ("-n", "nls-system", "exec", "daemonset/nls-scheduler", "--", "nls", "status"),
            ("-n", "nls-system", "exec", "daemonset/nls-scheduler", "--", "nls", "history"),
        ]
        told = [f"$ kubectl {' '.join(words)}\n{self._told(*words)}" for words in asked]
        logs = [f"$ tail {log.name}\n{log.read_text()[-_TAIL:]}" for log in sorted(self._folder.glob("logs/*.log"))]
        return "\n".join((*told, *logs))

    def _told(self, *words: str) -> str:
        """With what went wrong; nobody is waited for."""
        command = ["kubectl", "--request-timeout=10s", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_WORD_S, check=False)
        except subprocess.TimeoutExpired as error:
            return str(error)
        return done.stdout + done.stderr

    def following(self, name: str) -> subprocess.Popen[str]:
        """The log of a notebook's pod, from now on until it ends."""
        command = ["kubectl", "-n", "notebooks", "logs", "--follow", name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def metrics(self) -> dict[str, float]:
        """Of the daemon, by name and labels."""
        chosen = ("-l", "app.kubernetes.io/name=nls-scheduler", "-o", "jsonpath={.items[0].status.podIP}")
        address = self.kubectl("-n", "nls-system", "get", "pod", *chosen)
        with urlopen(f"http://{address}:9475/metrics", timeout=PATIENCE_S) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def signal(self, service: str, number: Signals) -> None:
        """To a service of the node, such as `kubelet`."""
        os.kill(int((self._folder / "pids" / service).read_text()), number)

    def reboot(self) -> None:
        """Until its kubelet and its device plugin are back."""
        service = self._folder / "pids/kubelet"
        pid, before = service.read_text(), self.plugin.registrations
        os.kill(1, signal.SIGHUP)
        wait_until(lambda: service.read_text() != pid, PATIENCE_S)
        wait_until(lambda: self.plugin.registrations > before and self.plugin.known(), PATIENCE_S)

    # The story ---------------------------------------------------------------------------------------------------

    def reserve(self, group: str) -> None:
        """As KAI's binder: a pod that holds a GPU for a group, and says which."""
        name = f"gpu-reservation-{group}"
        self.apply(pod(name, RESERVATIONS, gpus=1, labels={"runai-gpu-group": group}, nodeName=NAME))
        wait_until(lambda: self.running(name, RESERVATIONS), PATIENCE_S)
        told = self.device(name, RESERVATIONS)
        self.kubectl("-n", RESERVATIONS, "annotate", "pod", name, f"run.ai/reserve_for_gpu_index={told}")

    def request(self, name: str, group: str) -> None:
        """As KAI's scheduler: its decision that a pod gets half of a GPU, for the binder."""
        spec = {
            "podName": name,
            "selectedNode": NAME,
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.5"},
            "selectedGPUGroups": [group],
        }
        head = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
        metadata = {"name": name, "namespace": "notebooks", "labels": {"selected-node": NAME}}
        self.apply({**head, "metadata": metadata, "spec": spec})

    def notebooks(self, group: str, example: Path = EXAMPLE) -> None:
        """alice and bob of an example, in a group."""
        rendered = self.kubectl("kustomize", str(example))
        # Tests come from the node, and not by a port-forward.
        rendered = rendered.replace("ip=127.0.0.1", "ip=0.0.0.0").replace(".token=", f".token={TOKEN}")
        self.kubectl("apply", "-f", "-", given=rendered)
        self.bind_notebooks(group)

    def bind_notebooks(self, group: str) -> None:
        """As KAI's binder binds them, the group's label first; until they run."""
        for name in NOTEBOOKS:
            wait_until(lambda name=name: self.get("pod", name, "notebooks"), PATIENCE_S)
            self.kubectl("-n", "notebooks", "label", "pod", name, f"runai-gpu-group={group}")
            self.bind(name, "notebooks")
        for name in NOTEBOOKS:
            wait_until(lambda name=name: self.running(name), PATIENCE_S)

    def bind(self, name: str, namespace: str, node: str = NAME) -> None:
        """As a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        head = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        self.kubectl("create", "--raw", path, "-f", "-", given=json.dumps({**head, "target": target}))

    def clear(self) -> None:
        """No notebook, no reservation and no pod of a test."""
        for namespace in ("notebooks", RESERVATIONS):
            self.kubectl("-n", namespace, "delete", "statefulsets,pods", "--all", "--wait")
        wait_until(lambda: not self.status().get("workloads", True), PATIENCE_S)

    def open(self, name: str) -> Notebook:
        """A notebook in that pod's Jupyter Server."""
        address = self.get("pod", name, "notebooks")["status"]["podIP"]
        server = JupyterServer(f"http://{address}:8888", TOKEN)

        async def opened() -> Notebook:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        return await server.open(f"{name}.ipynb")
                    except OSError:
                        await asyncio.sleep(0.1)

        return asyncio.run_coroutine_threadsafe(opened(), self._loop).result()

    def close(self, notebook: Notebook) -> None:
        """Without a word to its kernel."""
        self._loop.call_soon_threadsafe(notebook.close)

    def run(self, notebook: Notebook, code: str) -> str:
        """A cell's standard output and result."""
        outputs = asyncio.run_coroutine_threadsafe(notebook.run(code, PATIENCE_S), self._loop).result()
        return f"{outputs.stdout}{outputs.result or ''}"

    def current(self) -> set[str]:
        """The GPUs on which notebooks run."""
        return {gpu for workload in self.status().get("workloads", ()) for gpu in workload["current"]}


def changed_example(folder: Path, *patches: list[dict[str, Any]]) -> Path:
    """An example of our own in `folder`: the notebooks of `EXAMPLE` with these changes."""
    target = {"kind": "StatefulSet", "labelSelector": "app.kubernetes.io/name=notebook"}
    changes = [{"target": target, "patch": json.dumps(patch)} for patch in patches]
    written = {"resources": [os.path.relpath(EXAMPLE, folder.resolve())], "patches": changes}
    (folder / "kustomization.yaml").write_text(json.dumps(written))
    return folder


def held_pod(name: str, **spec: Any) -> Any:
    """A pod with a whole GPU that starts once that is vacated."""
    socket = {"name": "socket", "hostPath": {"path": "/run/nls", "type": "DirectoryOrCreate"}}
    waits = {
        "name": WAITS,
        "image": "nls-scheduler:0.1.0",
        "imagePullPolicy": "Never",
        "command": ["nls", "wait-for-gpus", "--timeout=60"],
        "volumeMounts": [{"name": "socket", "mountPath": "/run/nls", "readOnly": True}],
    }
    return pod(name, "notebooks", gpus=1, initContainers=[waits], volumes=[socket], **spec)


def pod(
    name: str,
    namespace: str,
    *,
    gpus: int = 0,
    labels: dict[str, str] | None = None,
    command: list[str] | None = None,
    **spec: Any,
) -> Any:
    """A pod that does nothing, with whole GPUs."""
    container: dict[str, Any] = {"name": "main", "image": OTHER.rpartition("/")[2], "imagePullPolicy": "Never"}
    if command is not None:
        container["command"] = command
    if gpus:
        container |= {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    written = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": written}
