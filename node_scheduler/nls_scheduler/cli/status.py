"""`nls status`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say, shortened, table
from nls_scheduler.cli.topics import topic_of_reason
from nls_scheduler.processes.whose_files import name_of
from nls_scheduler.units.clock import local_time
from nls_scheduler.units.sizes import format_amount, format_bytes, format_each
from nls_scheduler.wire.errors import WITHOUT_GPU
from nls_scheduler.wire.told import how_many_gpus

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

ID_SHOWN: Final = 6
_EPILOG = """examples:
  nls status
  nls status --json | jq '.workloads[] | {name, phase, reason}'
  nls status --watch                 again whenever something changes, until Ctrl-C
  nls status --watch --json          the same, one line of JSON each
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "status",
        help="who has which GPU, who waits, and why",
        description="Shows the GPUs of this machine and what asks for them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument(
        "--watch", action="store_true", help="again whenever something changes; memory alone does not count"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.watch:
        from nls_scheduler.cli.watching import watch

        return watch(options.socket, as_json=options.json)
    status = ask(options.socket, lambda client: client.status())
    say(json.dumps(status, indent=2) if options.json else render(status))
    return 0


def render(status: dict[str, Any]) -> str:
    """The status as text for people."""
    labels = {gpu["uuid"]: f"GPU {gpu['index']}" for gpu in status["gpus"]}
    parts = []
    if status["simulated"]:
        parts.append("These GPUs are simulated.")
    if not status["gpus"] and not status["simulated"]:
        parts.append(f"{status['message'] or 'This node has no GPU.'} {WITHOUT_GPU}")
    elif status["message"]:
        parts.append(status["message"])
    if status["gpus"]:
        parts.append(table([["GPU", "NAME", "USED", "OF", "BUSY", ""], *map(_gpu, status["gpus"])]))
    linked = _topology(status["gpus"])
    if linked:
        parts.append(linked)
    heading = ["WORKLOAD", "PHASE", "ON", "HOME", "REQUEST", "LIMIT", "USED", "WHY"]
    names = Counter(workload["name"] for workload in status["workloads"])
    rows = [_workload(workload, labels, alike=names[workload["name"]] > 1) for workload in status["workloads"]]
    users = [_user(workload) for workload in status["workloads"]]
    if len({*users, ""}) > 2:
        heading.insert(1, "USER")
        for row, user in zip(rows, users, strict=True):
            row.insert(1, user or "-")
    owners = [_owner(owner, labels) for owner in status.get("owners", ())]
    if rows or not owners:
        parts.append(table([heading, *rows]) if rows else "Nobody asks for a GPU.")
    if owners:
        parts.append(table([["OWNER", "ON", "OF EACH"], *owners]))
    if topics := _topics(status["workloads"]):
        parts.append(f"Why they wait: {', '.join(f'nls help {topic}' for topic in topics)}")
    if status.get("queues"):
        heading = ["QUEUE", "POOL", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "REQUESTED", "WAITING"]
        parts.append(table([heading, *(row for queue in status["queues"] for row in _queue(queue))]))
    return "\n\n".join(parts)


def _user(workload: dict[str, Any]) -> str:
    """Whose it is; nothing where its name is hidden from who asks."""
    uid = workload.get("owner")
    if uid is None or workload["name"] == f"another user's {workload['kind']}":
        return ""
    return name_of(uid) or str(uid)


def _topics(workloads: list[dict[str, Any]]) -> list[str]:
    """Of those who wait or have failed, what explains their reasons; nothing where a daemon does not tell the kinds."""
    stuck = (w for w in workloads if w["position"] is not None or w["phase"] == "failed")
    found = (topic_of_reason(workload.get("reason_kind")) for workload in stuck)
    return list(dict.fromkeys(topic for topic in found if topic is not None))


def _queue(queue: dict[str, Any]) -> list[list[str]]:
    name = queue["name"] if queue["parent"] is None else f"{queue['parent']}/{queue['name']}"
    figures = ("quota", "limit", "fair_share", "used", "requested")
    return [
        [name, pool["pool"], *(format_amount(pool[figure]) for figure in figures), str(queue["waiting"])]
        for pool in queue["pools"]
    ]


def _gpu(gpu: dict[str, Any]) -> list[str]:
    busy = "" if gpu["utilisation"] is None else f"{gpu['utilisation']:.0%}"
    total = format_bytes(gpu["memory_total_bytes"])
    remark = "" if gpu["healthy"] else "unhealthy"
    return [f"GPU {gpu['index']}", gpu["name"], format_bytes(gpu["memory_used_bytes"]), total, busy, remark]


def _owner(owner: dict[str, Any], labels: dict[str, str]) -> list[str]:
    """Somebody whom the cluster gave a right to GPUs, and whom the daemon does not look after."""
    on = [labels.get(gpu["uuid"], gpu["uuid"]) for gpu in owner["gpus"]]
    if owner["devices_to_come"]:
        on.append(f"{owner['devices_to_come']} to come")
    sizes = [gpu["request_bytes"] for gpu in owner["gpus"]] or [None]
    told = dict.fromkeys("all of it" if size is None else format_bytes(size) for size in sizes)
    return [owner["name"], ", ".join(on) or "-", ", ".join(told)]


_WORDS = {"nvlink": "NVLink", "switch": "one PCIe switch", "numa": "one NUMA node"}


def _topology(gpus: list[dict[str, Any]]) -> str:
    """What joins Gpus, one line for each way; nothing where the driver says nothing."""
    labels = {gpu["uuid"]: f"{gpu['index']}" for gpu in gpus}
    lines = []
    for link, words in _WORDS.items():
        joined = {
            tuple(sorted((int(labels[gpu["uuid"]]), int(labels[other]))))
            for gpu in gpus
            for other, how in gpu.get("links", {}).items()
            if how == link and other in labels
        }
        if joined:
            lines.append(f"{words}: " + ", ".join(f"{one}-{other}" for one, other in sorted(joined)))
    return "\n".join(lines)


def _workload(workload: dict[str, Any], labels: dict[str, str], *, alike: bool) -> list[str]:
    """`alike`: others have its name, which its id tells it from; by that it is called, too, where it is cut short."""
    name = shortened(workload["name"])
    phase = workload["phase"] + (" (cell)" if workload["executing"] and workload["kind"] == "notebook" else "")
    if (frozen := workload.get("frozen")) is not None:
        phase += f" (its cell stands still since {local_time(frozen['since'])}"
        phase += ")" if frozen["for"] is None else f", for {frozen['for']})"
    if workload.get("keep_until") is not None:
        phase += f" (kept until {local_time(workload['keep_until'])})"
    if workload["position"] is not None:
        phase += f" ({workload['position']}. in line)"
    gpus = how_many_gpus(workload)
    return [
        f"{name} ({workload['id'][:ID_SHOWN]})" if alike or name != workload["name"] else name,
        phase,
        ", ".join(workload["gpus"]) or "-",
        ", ".join(labels.get(uuid, uuid) for uuid in workload["home"]) or "-",
        format_each(workload["request_bytes"], gpus),
        format_each(workload["limit_bytes"], gpus),
        format_bytes(workload["memory_used_bytes"]),
        workload["reason"],
    ]
