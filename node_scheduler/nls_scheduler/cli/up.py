"""`nls up`: the daemon."""

from __future__ import annotations

import argparse
import errno
import logging
import math
import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell, why

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.daemon.cluster import Cluster
    from nls_scheduler.daemon.ports import Driver
    from nls_scheduler.daemon.settings import DaemonSettings
    from nls_scheduler.drivers.selection import Selection

_EPILOG = """examples:
  nls up                                       serve this machine's GPUs for this user
  nls up --simulate 2x16GiB                    two simulated GPUs, to try it out
  nls up --socket /run/nls/nls.sock            one daemon for all users (as root)
  nls up --gpus 0,1                            serve these two only
  nls up --kubernetes                          one node of a cluster, in a DaemonSet's pod
  nls up --set reclaim_deadline_s=10           other rules; also in nls_config.py of Jupyter's configuration
"""

_OF_A_CLUSTER: Final = (
    "node_name", "kubeconfig", "kubelet_socket", "policy", "topology", "reservation_namespace", "socket_directory",
)  # fmt: skip
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "up",
        help="run the daemon that shares the GPUs",
        description="Runs the daemon in the foreground until Ctrl-C or `nls down`. GPU processes go on without it. "
        "SIGHUP makes it read its configuration again. A daemon that a client has started by itself makes room for it, "
        "unless somebody uses that.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument(
        "--simulate",
        metavar="COUNTxSIZE",
        help="simulated GPUs instead of real ones; also the path of a topology.yml of fake-gpu-operator (default: "
        "$NLS_SIMULATE, as for a daemon that a client starts)",
    )
    parser.add_argument(
        "--context-memory", metavar="SIZE", default="400MiB", help="what a simulated CUDA context takes (%(default)s)"
    )
    parser.add_argument(
        "--gpus",
        metavar="UUID[,UUID]",
        help="serve only these, by UUID or index, or all (default: what CUDA_VISIBLE_DEVICES shows, where that is set)",
    )
    _add_kubernetes(parser)
    parser.add_argument("--idle-exit", type=_seconds, metavar="SECONDS", help="end after this long without any use")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="assignments", help="change a setting"
    )
    parser.add_argument(
        "--background",
        action="store_true",
        help="return once the daemon answers, and leave it running; its log is the file to which stderr goes, else "
        "nls.log beside its socket",
    )
    parser.add_argument("--verbose", action="store_true", help="log each request")
    parser.set_defaults(run=_run)


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubernetes", action="store_true", help="homes and owners come from this node's cluster (extra: kubernetes)"
    )
    parser.add_argument("--node-name", metavar="NAME", help="this node's name (default: $NODE_NAME)")
    parser.add_argument("--kubeconfig", metavar="PATH", help="reach the API server by this instead of as a pod does")
    parser.add_argument(
        "--kubelet-socket",
        metavar="PATH",
        help="the kubelet's podresources socket (/var/lib/kubelet/pod-resources/kubelet.sock)",
    )
    parser.add_argument(
        "--policy", metavar="NAMESPACE/NAME", help="a ConfigMap with the cluster's settings, followed as it changes"
    )
    parser.add_argument(
        "--topology",
        metavar="NAMESPACE/NAME",
        help="fake-gpu-operator's ConfigMap of this node, which says which simulated GPU each pod has",
    )
    parser.add_argument(
        "--reservation-namespace",
        metavar="NAME",
        help="where KAI Scheduler has its reservation pods, and nobody else makes any (default: "
        "kai-resource-reservation, and Run:ai's runai-reservation)",
    )
    parser.add_argument(
        "--first-list-within",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="a random part of this passes before the cluster's BindRequests are first asked for, so that not all "
        "nodes ask at once; this node's own objects are asked for at once (%(default)g)",
    )
    parser.add_argument(
        "--socket-directory", metavar="PATH", help="where the node has the socket's directory (default: its own)"
    )


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.daemon import log_lines

    # Whoever starts a daemon may have blocked the signals that end it, as `nls run` does, and masks are inherited.
    # One that is told to read its configuration again while it starts does so when it serves, and does not end.
    signal.pthread_sigmask(signal.SIG_SETMASK, (signal.SIGHUP,))
    # What it writes tells of all its users; what others have to reach it opens to them.
    os.umask(0o077)
    # Forked before anything starts a thread or a loop.
    ready = _in_background() if options.background else None
    if isinstance(ready, int):
        return ready
    log_lines.begin(verbose=options.verbose)
    return _serve(options, ready or _nothing)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above zero")


def _selection(options: argparse.Namespace) -> Selection:
    """The Gpus to serve; says so where the environment has chosen them. Raises ValueError."""
    from nls_scheduler.drivers.selection import Selection
    from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

    if options.gpus is not None:
        return Selection.parse(options.gpus)
    selection = Selection() if options.simulate is not None else Selection.from_environment(os.environ)
    if selection.wanted:
        chosen = ", ".join(sorted(selection.wanted))
        tell(f"Only GPU {chosen} is served, as {VISIBLE_VARIABLE} is set: --gpus all serves every one.")
    return selection


def _serve(options: argparse.Namespace, ready: Callable[[], None]) -> int:
    from nls_scheduler.daemon import config
    from nls_scheduler.daemon.http import server
    from nls_scheduler.daemon.http.ownership import AlreadyRunning
    from nls_scheduler.daemon.journal_tables import JournalError
    from nls_scheduler.daemon.state_folder import JOURNAL_NAME
    from nls_scheduler.drivers.simulated import SimulationSpec
    from nls_scheduler.units.sizes import parse_bytes
    from nls_scheduler.wire import locate

    named = options.socket or os.environ.get(locate.SOCKET_VARIABLE)

    def reload(cluster_values: Mapping[str, Any] | None) -> DaemonSettings:
        return config.load(
            options.assignments, config.places(), shared=shared, defaults=defaults, cluster=cluster_values
        )

    try:
        path = locate.checked(Path(named)) if named else locate.per_user_socket()
        shared = path == locate.SYSTEM_SOCKET or options.kubernetes
        if options.simulate is None:
            options.simulate = os.environ.get(locate.SIMULATE_VARIABLE) or None
        cluster, defaults = _cluster(options, path) if options.kubernetes else _no_cluster(options)
        settings = reload(None)
        selection = _selection(options)
        simulation = SimulationSpec.parse(options.simulate) if options.simulate is not None else None
        context_memory_bytes = parse_bytes(options.context_memory)
    except ValueError as error:
        tell(str(error))
        return exit_codes.USAGE

    state_dir = options.state_dir or path.parent

    def answers() -> None:
        if options.background:
            _let_go_of_whoever_waits(path.with_name(locate.LOG_NAME))
        ready()

    def make_driver() -> Driver:
        # Pods reach the daemon's folder as its user; users of a machine find the simulation beside the socket.
        everybodys = shared and not options.kubernetes
        if simulation is None:
            from nls_scheduler.drivers.nvml import NvmlDriver

            return NvmlDriver(selection)
        from nls_scheduler.drivers.simulated import SimulatedDriver

        directory = (path.parent if everybodys else state_dir) / "simulated"
        return SimulatedDriver(directory, simulation, context_memory_bytes, selection, for_everybody=everybodys)

    if not named:
        _say_whether_another_serves(path)
    try:
        _take_the_place_of_an_unasked_one(path)
        server.serve(path, make_driver, settings, state_dir / JOURNAL_NAME, options.idle_exit, answers, reload, cluster)
    except (AlreadyRunning, JournalError) as error:
        tell(str(error))
        return exit_codes.NO_DAEMON
    except ValueError as error:
        tell(str(error))
        return exit_codes.USAGE
    except OSError as error:
        helps = _what_helps(error, None if named else path)
        tell(f"The daemon cannot serve {path}: {why(error).removesuffix('.')}.{helps}")
        return exit_codes.NO_DAEMON
    return 0


def _what_helps(error: OSError, by_itself: Path | None) -> str:
    """A sentence more, or none; `by_itself`: the socket, where nobody has named it."""
    from nls_scheduler.wire import locate

    if error.errno in _DISK_FULL:
        return " Free the disk that this is on, and start it again."
    if by_itself is not None and locate.why_not_at(by_itself) is not None:
        return f" {locate.ELSEWHERE[0].upper()}{locate.ELSEWHERE[1:]}."
    return ""


def _say_whether_another_serves(path: Path) -> None:
    """Of this user's own daemon, which clients would not ask beside the node's."""
    from nls_scheduler.wire import locate

    if path != locate.SYSTEM_SOCKET and locate.answers(locate.SYSTEM_SOCKET):
        tell(
            f"another daemon serves this node at {locate.SYSTEM_SOCKET}, and knows nothing of this one: "
            f"clients ask that, and this one only with --socket {path}"
        )


def _take_the_place_of_an_unasked_one(path: Path) -> None:
    """End a daemon at `path` that a client has started by itself, if it looks after nobody; any other one stays."""
    from nls_scheduler.cli.asking import ask
    from nls_scheduler.cli.down import Stays, end_daemon
    from nls_scheduler.wire.errors import DaemonUnreachable
    from nls_scheduler.wire.holder import holder_of
    from nls_scheduler.wire.locate import has_come_unasked

    holder = holder_of(path)
    if holder is None or holder.stopped or not has_come_unasked(holder):
        return
    with suppress(DaemonUnreachable, Stays):
        if not ask(path, lambda client: client.status())["workloads"]:
            end_daemon(path)
            tell(f"a client had started the daemon at {path} by itself, and nobody uses it: this one takes its place")


def _cluster(options: argparse.Namespace, path: Path) -> tuple[Cluster, Mapping[str, Any]]:
    """The cluster's driver and its defaults. Raises ValueError with one sentence for what is missing."""
    node = options.node_name or os.environ.get("NODE_NAME")
    if not node:
        raise ValueError("--kubernetes needs the node's name: set NODE_NAME by a fieldRef, or give --node-name.")
    for option in ("policy", "topology"):
        named = getattr(options, option)
        if named is not None and (named.count("/") != 1 or not all(named.split("/"))):
            raise ValueError(f"--{option} {named} is not NAMESPACE/NAME.")
    if options.topology is not None and not options.simulate:
        raise ValueError("--topology is of simulated GPUs: it goes with --simulate.")
    try:
        from nls_scheduler.kubernetes_driver import policy
        from nls_scheduler.kubernetes_driver.api import KubernetesApi
        from nls_scheduler.kubernetes_driver.driver import ClusterSettings, KubernetesCluster
        from nls_scheduler.kubernetes_driver.pace import Pace
        from nls_scheduler.kubernetes_driver.podresources import DEFAULT_SOCKET
    except ModuleNotFoundError as error:
        raise ValueError(f"--kubernetes needs {error.name}: pip install 'nls-jupyter[kubernetes]'.") from error
    settings = ClusterSettings(
        node=node,
        socket_directory=options.socket_directory or str(path.parent),
        kubelet_socket=Path(options.kubelet_socket or DEFAULT_SOCKET),
        config_map=options.policy,
        topology=options.topology,
        reservation_namespace=options.reservation_namespace,
        whole_node=options.gpus is None,
        pace=Pace(spread_s=options.first_list_within),
    )
    return KubernetesCluster(settings, lambda: KubernetesApi.connect(options.kubeconfig)), policy.DEFAULTS


def _no_cluster(options: argparse.Namespace) -> tuple[None, Mapping[str, Any]]:
    """On a plain machine. Raises ValueError for an option that would mean nothing."""
    for option in _OF_A_CLUSTER:
        if getattr(options, option) is not None:
            raise ValueError(f"--{option.replace('_', '-')} means nothing without --kubernetes.")
    return None, {}


def _nothing() -> None:
    """What happens in the foreground once the daemon answers: it has logged that."""


def _let_go_of_whoever_waits(log_path: Path) -> None:
    """A terminal or a pipe is not kept open by a daemon that nobody waits for any more: it goes on in its log.

    Whoever gave it a file keeps that.
    """
    kept_open = [fd for fd in (0, 1, 2) if os.isatty(fd) or stat.S_ISFIFO(os.fstat(fd).st_mode)]
    if kept_open:
        from nls_scheduler.wire import locate

        for handler in logging.root.handlers:
            handler.flush()  # what it has told, it has told to whoever waits
        with locate.opened_log(log_path) as log, Path(os.devnull).open("rb") as nothing:
            for descriptor in kept_open:
                os.dup2((log if descriptor else nothing).fileno(), descriptor)


def _in_background() -> int | Callable[[], None]:
    """In the parent, the exit code, once the daemon answers or has failed; in the daemon, what to call when ready."""
    from nls_scheduler.daemon.http.listening import pass_on

    outcome, outcome_of_daemon = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(outcome)
        os.setsid()
        pass_on(os.getppid())

        def ready() -> None:
            os.write(outcome_of_daemon, b"ready")
            os.close(outcome_of_daemon)

        return ready
    os.close(outcome_of_daemon)
    answer = os.read(outcome, 16)
    os.close(outcome)
    if answer == b"ready":
        return 0
    _, status = os.waitpid(pid, 0)
    sys.stderr.flush()
    return os.waitstatus_to_exitcode(status) or exit_codes.NO_DAEMON
