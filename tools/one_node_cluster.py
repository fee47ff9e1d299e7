"""A real Kubernetes cluster of one node or more, in namespaces of its own; nothing of it stays.

    one_node_cluster.py --assets FOLDER [--nodes N] [--image TAR]... [COMMAND ...]

FOLDER has etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelet, as envtest's convention has it
(KUBEBUILDER_ASSETS). containerd, runc, the standard CNI plugins, gcc and openssl are the machine's, and root's powers
are needed. COMMAND runs in the cluster's namespaces with KUBECONFIG, and the cluster goes when it ends; without one it
stays until Ctrl-C.

The node has /run, /var/lib and /var/log of its own. Its services come back a second after they died, as with systemd.
ONE_NODE_CLUSTER names the folder in which COMMAND finds `pids/NAME` and `logs/NAME.log` of each. SIGHUP to pid 1 is a
reboot: every process of the node but COMMAND is killed, /run is empty, and all begins again. Further nodes
(`further_node.py`) have `pids/NODE`, whose mounts are theirs; their services begin again with a reboot.

There is no DNS, no kube-proxy and no network policy: pods reach the API server at its service's address, which is the
node's, and the API server reaches webhooks by their endpoints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from further_node import FurtherNode
from image_archive import Image, write_images
from kept_settings import SYSCTLS, settings_kept
from node_settings import PAUSE, PLUGINS, SERVICE_ADDRESS, SOCKET, Place, containerd, kubeconfig, kubelet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ASSETS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS: Final = (
    *("containerd", "ctr", "runc", "gcc", "ip", "mount", "nsenter", "openssl", "setpriv", "umount", "unshare"),
)
FIRST: Final = Place(0)
NODE, NODE_ADDRESS = FIRST.name, FIRST.address
USERS: Final = {
    "administrator": ("administrator", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
}
OF_ITS_OWN: Final = ("/var/lib", "/var/log")
CGROUPS: Final = Path("/sys/fs/cgroup")
RESTART_S: Final = 1.0
READY_S: Final = 180.0
_SIGNALS: Final = {signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT}


def missing(assets: Path | None) -> str | None:
    """Why there can be no cluster on this machine; `None`: there can."""
    if assets is None:
        return "KUBEBUILDER_ASSETS names no folder with a kubelet: see CONTRIBUTING.md"
    absent = [name for name in ASSETS if not (assets / name).exists()]
    if absent:
        return f"{assets} has no {', '.join(absent)}"
    absent = [name for name in TOOLS if shutil.which(name) is None]
    if absent:
        return f"not on the PATH: {', '.join(absent)} (Debian: containerd, runc, gcc, iproute2, openssl, util-linux)"
    if not any(folder.exists() for folder in PLUGINS):
        return "no CNI plugins (Debian: containernetworking-plugins)"
    return None if os.geteuid() == 0 else "only root can make a node"


def cgroup_roots() -> list[Path]:
    """Of every hierarchy of this machine: one with cgroup v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in sorted(CGROUPS.iterdir()) if path.is_dir() and not path.is_symlink() and path.is_mount()]


class Node:
    """The node from within: pid 1 of its namespaces. `folder` is its state."""

    def __init__(self, assets: Path, folder: Path, images: Sequence[Path], command: Sequence[str], nodes: int) -> None:
        self._assets, self._folder, self._images, self._command = assets, folder, images, command
        places = [Place(number) for number in range(1, nodes)]
        self._further = [FurtherNode(place, folder / place.name) for place in places]
        self._services: dict[int, str] = {}
        self._due: dict[str, float] = {}
        self._log = folder / "logs"
        self._cgroups = [root / folder.name for root in cgroup_roots()]

    def run(self) -> int:
        """Everything, from the first mount to the end of COMMAND; its exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for path in OF_ITS_OWN:
            kept = self._folder / path.strip("/").replace("/", "-")
            kept.mkdir()
            _run("mount", "--bind", str(kept), path)
        self._network()
        self._settings()
        self._boot()
        for node in self._further:
            self._begin(node)
        command = self._prepared_command()
        while True:
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                self._start(name)
            met = signal.sigtimedwait(_SIGNALS, 0.2 if self._due else 60)
            if met is not None and met.si_signo in (signal.SIGTERM, signal.SIGINT):
                return 128 + met.si_signo
            if met is not None and met.si_signo == signal.SIGHUP:
                self._reboot()
            for pid, status in _ended():
                if pid == command:
                    return os.waitstatus_to_exitcode(status)
                name = self._services.pop(pid, None)
                if name is not None:
                    self._due[name] = time.monotonic() + RESTART_S

    def _begin(self, node: FurtherNode) -> None:
        name = node.place.name
        for cgroup in self._cgroups:
            (cgroup / name).mkdir()
            _inherit_cpus(cgroup / name)
        node.folder.mkdir()
        node.begin(f"/{self._folder.name}/{name}")
        (self._folder / "pids" / name).write_text(str(node.pid))
        _until((node.folder / "mounted").exists, f"{name} has no mounts")
        for service in self._options_of(node):
            self._start(service)

    def _boot(self) -> None:
        _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
        for name in self._options():
            self._start(name)

    def _options_of(self, node: FurtherNode) -> dict[str, list[str]]:
        return node.options(self._folder / f"kubelet-{node.place.name}.kubeconfig")

    def _reboot(self) -> None:
        self._services.clear()
        self._due.clear()
        for path in (self._cgroups[-1] / "cgroup.procs", *self._cgroups[-1].rglob("cgroup.procs")):
            for pid in path.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        # A kubelet asks for seconds after each container of which there is a cgroup, and nothing else.
        for cgroup in self._cgroups:
            for at in (cgroup, *(cgroup / node.place.name for node in self._further)):
                _remove_cgroup(at / "kubepods")
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for point in (point.encode().decode("unicode_escape") for point in reversed(points)):
            # What the machine has mounted below its own /var/lib is hidden by ours.
            if (point == "/run" or point.startswith(("/run/", "/var/lib/"))) and Path(point).is_mount():
                _run("umount", "--lazy", point)
        self._boot()
        for node in self._further:
            for name in self._options_of(node):
                self._start(name)

    def _start(self, name: str) -> None:
        self._due.pop(name, None)
        service, _, where = name.partition("-node-")
        executable = "containerd" if service == "containerd" else str(self._assets / service)
        started = [executable, *self._options().get(name, ())]
        for node in (each for each in self._further if where and each.place.name == f"node-{where}"):
            started = node.entered(executable, *self._options_of(node)[name])
        log = str(self._folder / "logs" / f"{name}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600)]
        actions += [(os.POSIX_SPAWN_DUP2, 1, 2)]
        # It is in the node's cgroup before it makes anything.
        joined = 'for c in $CGROUPS; do echo 0 > "$c/services/cgroup.procs"; done; exec "$@"'
        arguments = ["sh", "-c", joined, "sh", *started]
        environment = {**os.environ, "CGROUPS": " ".join(map(str, self._cgroups))}
        pid = os.posix_spawn("/bin/sh", arguments, environment, file_actions=actions, setsigmask=[])
        self._services[pid] = name
        (self._folder / "pids" / name).write_text(str(pid))

    # Settings ----------------------------------------------------------------------------------------------------

    def _network(self) -> None:
        """The service's address is the node's own, so that nobody has to translate it."""
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "node0", "type", "bridge")
        _run("ip", "link", "set", "node0", "up")
        for address in (NODE_ADDRESS, SERVICE_ADDRESS, *(node.place.address for node in self._further)):
            _run("ip", "address", "add", f"{address}/32", "dev", "node0")
        _run("ip", "route", "add", "default", "dev", "node0")

    def _settings(self) -> None:
        folder = self._folder
        for name in ("logs", "pids", "cni"):
            (folder / name).mkdir()
        for cgroup in self._cgroups:
            (cgroup / "services").mkdir(parents=True)
            _inherit_cpus(cgroup, cgroup / "services")
        users = {**USERS, "kubelet": (f"system:node:{NODE}", "system:nodes")}
        for name in (node.place.name for node in self._further):
            users[f"kubelet-{name}"] = (f"system:node:{name}", "system:nodes")
        tokens = {name: secrets.token_hex(16) for name in users}
        lines = [f'{tokens[name]},{user},{user},"{group}"\n' for name, (user, group) in users.items()]
        (folder / "tokens.csv").write_text("".join(lines))
        for name, token in tokens.items():
            (folder / f"{name}.kubeconfig").write_text(json.dumps(kubeconfig(folder / "apiserver.crt", token)))
        _run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(folder / "accounts.key"))
        (folder / "cni" / "one-node.conflist").write_text(json.dumps(FIRST.cni()))
        (folder / "containerd.toml").write_text(containerd(folder))
        (folder / "kubelet.json").write_text(json.dumps(FIRST.kubelet(kubelet(folder, f"/{folder.name}"))))

    def _options(self) -> dict[str, list[str]]:
        """Of every service, in the order of their start."""
        folder, key = self._folder, self._folder / "accounts.key"
        etcd = "http://127.0.0.1:2379"
        return {
            "etcd": [
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                # No power is cut here: what the kernel was given is kept.
                "--unsafe-no-fsync=true",
            ],
            "kube-apiserver": [
                f"--etcd-servers={etcd}",
                "--secure-port=443",
                f"--advertise-address={NODE_ADDRESS}",
                f"--cert-dir={folder}",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--allow-privileged=true",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-aggregator-routing=true",
                "--kubelet-preferred-address-types=InternalIP",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
            ],
            "containerd": [f"--config={folder / 'containerd.toml'}"],
            "kube-controller-manager": [
                f"--kubeconfig={folder / 'kube-controller-manager.kubeconfig'}",
                f"--service-account-private-key-file={key}",
                f"--root-ca-file={folder / 'apiserver.crt'}",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
            ],
            "kube-scheduler": [f"--kubeconfig={folder / 'kube-scheduler.kubeconfig'}", "--leader-elect=false"],
            "kubelet": [
                f"--config={folder / 'kubelet.json'}",
                f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
                f"--hostname-override={NODE}",
                f"--node-ip={NODE_ADDRESS}",
            ],
        }

    # COMMAND -----------------------------------------------------------------------------------------------------

    def _prepared_command(self) -> int:
        """In a process of its own: until the node is ready, then COMMAND; its pid."""
        pid = os.fork()
        if pid:
            return pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            self._prepare()
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            print(f"there is no cluster: {error}", file=sys.stderr, flush=True)  # noqa: T201 - what the tool says
            os._exit(1)
        kubeconfig = str(self._folder / "administrator.kubeconfig")
        if not self._command:
            print(kubeconfig, flush=True)  # noqa: T201 - what the tool says
            signal.pause()
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "ONE_NODE_CLUSTER": str(self._folder)}
        return os.execvpe(self._command[0], list(self._command), environment)  # noqa: S606 - as it was asked

    def _prepare(self) -> None:
        pause = self._folder / "pause"
        pause.mkdir()
        code = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
        made = ["gcc", "-static", "-x", "c", "-o", str(pause / "pause"), "-"]
        subprocess.run(made, input=code, text=True, check=True)
        write_images(self._folder / "pause.tar", pause, [Image(PAUSE, ("/pause",))])
        archives = (self._folder / "pause.tar", *self._images)
        sockets = [SOCKET, *(f"/proc/{node.pid}/root{SOCKET}" for node in self._further)]
        for socket in sockets:
            _until(Path(socket).exists, "containerd has not begun")
            for archive in archives:
                _run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", str(archive))
        for name in (NODE, *(node.place.name for node in self._further)):
            _until(lambda name=name: self._is_ready(name), f"{name} does not become ready: see the logs")

    def _is_ready(self, name: str) -> bool:
        ready = '{.status.conditions[?(@.type=="Ready")].status}'
        asked = ["kubectl", "--kubeconfig", str(self._folder / "administrator.kubeconfig")]
        done = subprocess.run(
            [*asked, "get", "node", name, "-o", f"jsonpath={ready}"], capture_output=True, text=True, check=False
        )
        return done.stdout == "True"


def _inherit_cpus(*cgroups: Path) -> None:
    """Cgroup v1: a cpuset is empty at first, and nobody can be in it."""
    for at in (cgroup for cgroup in cgroups if (cgroup / "cpuset.mems").exists()):
        for name in ("cpuset.cpus", "cpuset.mems"):
            (at / name).write_text((at.parent / name).read_text())


def _ended() -> Iterator[tuple[int, int]]:
    """Processes that have ended, with their status: pid 1 is the parent of every orphan."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.2)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# From outside ----------------------------------------------------------------------------------------------------


def cluster(arguments: argparse.Namespace) -> int:
    """The namespaces around `Node`; what is left of it goes when it has ended."""
    folder = Path(tempfile.mkdtemp(prefix="one-node-"))
    spaces = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["setpriv", "--pdeathsig", "KILL", *spaces, sys.executable, __file__, "--inside", str(folder)]
    command += [
        "--assets",
        str(arguments.assets),
        f"--nodes={arguments.nodes}",
        *(f"--image={path}" for path in arguments.image),
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with settings_kept(SYSCTLS):
        try:
            with subprocess.Popen([*command, *arguments.command], start_new_session=True) as process:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    return 128 + signal.SIGINT
                finally:
                    process.kill()
        finally:
            for root in cgroup_roots():
                _remove_cgroup(root / folder.name)
            shutil.rmtree(folder)


def _remove_cgroup(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        _until(lambda path=Path(directory): _is_removed(path), f"{directory} is still in use")


def _is_removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def main() -> NoReturn:
    """As the head of this file says."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--assets", type=Path, default=Path(assets) if assets else None)
    parser.add_argument("--image", type=Path, action="append", default=[], help="an archive of images; may be repeated")
    parser.add_argument("--nodes", type=int, default=1, choices=range(1, 9), metavar="N", help="how many (1)")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    reason = missing(arguments.assets)
    if reason is not None:
        parser.exit(1, f"{reason}\n")
    if arguments.inside is not None:
        node = Node(arguments.assets, arguments.inside, arguments.image, arguments.command, arguments.nodes)
        sys.exit(node.run())
    sys.exit(cluster(arguments))


if __name__ == "__main__":
    main()
