"""A real Kubernetes cluster of one node, in namespaces of its own; nothing of it stays.

    one_node_cluster.py --assets FOLDER [--image TAR]... [COMMAND ...]

FOLDER has etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelet, as envtest's convention has it
(KUBEBUILDER_ASSETS). containerd, runc, the standard CNI plugins, gcc and openssl are the machine's, and root's powers
are needed. COMMAND runs in the cluster's namespaces with KUBECONFIG, and the cluster goes when it ends; without one it
stays until Ctrl-C.

The node has /run, /var/lib and /var/log of its own. Its services come back a second after they died, as with systemd.
ONE_NODE_CLUSTER names the folder in which COMMAND finds `pids/NAME` and `logs/NAME.log` of each. SIGHUP to pid 1 is a
reboot: every process of the node but COMMAND is killed, /run is empty, and all begins again.

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

from image_archive import Image, write_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ASSETS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS: Final = ("containerd", "ctr", "runc", "gcc", "ip", "mount", "openssl", "setpriv", "umount", "unshare")
PLUGINS: Final = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
NODE: Final = "node-a"
NODE_ADDRESS, SERVICE_ADDRESS, PODS = "10.88.0.1", "10.96.0.1", "10.89.0.0/24"
URL: Final = f"https://{SERVICE_ADDRESS}"
USERS: Final = {
    "administrator": ("administrator", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
PAUSE: Final = "docker.io/library/one-node-pause:1"
SOCKET: Final = "/run/containerd/containerd.sock"
OF_ITS_OWN: Final = ("/var/lib", "/var/log")
CGROUPS: Final = Path("/sys/fs/cgroup")
# A kubelet sets these, and they are the whole machine's.
SYSCTLS: Final = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
SYSCTLS_OF_KEYS: Final = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
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

    def __init__(self, assets: Path, folder: Path, images: Sequence[Path], command: Sequence[str]) -> None:
        self._assets, self._folder, self._images, self._command = assets, folder, images, command
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

    def _boot(self) -> None:
        _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
        for name in self._options():
            self._start(name)

    def _reboot(self) -> None:
        self._services.clear()
        self._due.clear()
        for path in (self._cgroups[-1] / "cgroup.procs", *self._cgroups[-1].rglob("cgroup.procs")):
            for pid in path.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        # A kubelet asks for seconds after each container of which there is a cgroup, and nothing else.
        for cgroup in self._cgroups:
            _remove_cgroup(cgroup / "kubepods")
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for point in reversed(points):
            if point == "/run" or point.startswith(("/run/", "/var/lib/")):
                _run("umount", "--lazy", point.encode().decode("unicode_escape"))
        self._boot()

    def _start(self, name: str) -> None:
        self._due.pop(name, None)
        executable = "containerd" if name == "containerd" else str(self._assets / name)
        log = str(self._folder / "logs" / f"{name}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600)]
        actions += [(os.POSIX_SPAWN_DUP2, 1, 2)]
        # It is in the node's cgroup before it makes anything.
        joined = 'for c in $CGROUPS; do echo 0 > "$c/services/cgroup.procs"; done; exec "$@"'
        arguments = ["sh", "-c", joined, "sh", executable, *self._options()[name]]
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
        for address in (NODE_ADDRESS, SERVICE_ADDRESS):
            _run("ip", "address", "add", f"{address}/32", "dev", "node0")
        _run("ip", "route", "add", "default", "dev", "node0")

    def _settings(self) -> None:
        folder = self._folder
        for name in ("logs", "pids", "cni"):
            (folder / name).mkdir()
        for cgroup in self._cgroups:
            (cgroup / "services").mkdir(parents=True)
            if (cgroup / "services" / "cpuset.mems").exists():
                _inherit_cpus(cgroup)
        tokens = {name: secrets.token_hex(16) for name in USERS}
        lines = [f'{tokens[name]},{user},{user},"{group}"\n' for name, (user, group) in USERS.items()]
        (folder / "tokens.csv").write_text("".join(lines))
        for name, token in tokens.items():
            (folder / f"{name}.kubeconfig").write_text(json.dumps(_kubeconfig(folder / "apiserver.crt", token)))
        _run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(folder / "accounts.key"))
        (folder / "cni" / "one-node.conflist").write_text(json.dumps(_cni()))
        (folder / "containerd.toml").write_text(_containerd(folder))
        (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder)))

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
        _until(lambda: Path(SOCKET).exists(), "containerd has not begun")
        for archive in (self._folder / "pause.tar", *self._images):
            _run("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", str(archive))
        _until(self._is_ready, f"{NODE} does not become ready: see the logs")

    def _is_ready(self) -> bool:
        ready = '{.status.conditions[?(@.type=="Ready")].status}'
        asked = ["kubectl", "--kubeconfig", str(self._folder / "administrator.kubeconfig")]
        done = subprocess.run(
            [*asked, "get", "node", NODE, "-o", f"jsonpath={ready}"], capture_output=True, text=True, check=False
        )
        return done.stdout == "True"


def _kubeconfig(certificate: Path, token: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": URL, "certificate-authority": str(certificate)}}],
        "users": [{"name": "one", "user": {"token": token}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }


def _cni() -> dict[str, object]:
    addresses = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "one-node", "plugins": [bridge]}


def _containerd(folder: Path) -> str:
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


def _kubelet(folder: Path) -> dict[str, object]:
    never = {"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Nobody else is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.name}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "evictionHard": never,
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "volumePluginDir": str(folder / "volume-plugins"),
    }


def _inherit_cpus(cgroup: Path) -> None:
    """Cgroup v1: a cpuset is empty at first, and nobody can be in it."""
    for at in (cgroup, cgroup / "services"):
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
    sysctls = [Path("/proc/sys") / name for name in (*SYSCTLS, *SYSCTLS_OF_KEYS)]
    kept = {path: path.read_text() for path in sysctls if path.exists()}
    folder = Path(tempfile.mkdtemp(prefix="one-node-"))
    spaces = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["setpriv", "--pdeathsig", "KILL", *spaces, sys.executable, __file__, "--inside", str(folder)]
    command += ["--assets", str(arguments.assets), *(f"--image={path}" for path in arguments.image)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
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
        for path, value in kept.items():
            path.write_text(value)
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
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    reason = missing(arguments.assets)
    if reason is not None:
        parser.exit(1, f"{reason}\n")
    if arguments.inside is not None:
        sys.exit(Node(arguments.assets, arguments.inside, arguments.image, arguments.command).run())
    sys.exit(cluster(arguments))


if __name__ == "__main__":
    main()
