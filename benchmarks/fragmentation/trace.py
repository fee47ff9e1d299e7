"""The nodes and pods of a cluster trace, read from CSV; each error is one sentence with the file and its line.

The published trace is Alibaba's cluster-trace-gpu-v2023 ("openb") in the form of the FGD simulator
(github.com/hkust-adsl/kubernetes-scheduler-simulator, data/csv); cite Weng et al., "Beware of Fragmentation", USENIX
ATC 2023. It is not part of this repository: `NLS_TRACES` names its folder.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MILLI: Final = 1000
"""A GPU has so many thousandths."""
NODES: Final = "openb_node_list_gpu_node.csv"
WORKLOADS: Final = ("default", "gpushare40", "gpushare100")
SHA256: Final = {
    NODES: "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    "openb_pod_list_default.csv": "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    "openb_pod_list_gpushare40.csv": "d83ce79a4eb6987524bedbb0c65e41aed3a36bf6c1b78b86234c3687a07e1d40",
    "openb_pod_list_gpushare100.csv": "12dbc07d6a49bf8641e2275a2ff5bf7be74b5df7d148d531e135b140b95f9a3d",
}
GPU_MEMORY_MIB: Final = {
    "A10": 22731,
    "G2": 20000,
    "G3": 30000,
    "P100": 16280,
    "T4": 15109,
    "V100M16": 16160,
    "V100M32": 32510,
}
"""What a GPU of each model has, as in the FGD simulator's `MapGpuTypeMemoryMiB`; nobody tells what G2 and G3 are."""
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "gpu", "model")
_POD_COLUMNS: Final = ("name", "cpu_milli", "num_gpu", "gpu_milli")


class TraceError(ValueError):
    """A trace that cannot be played: the sentence says which line of which file, and why."""


class Pod(NamedTuple):
    """A demand: thousandths of CPUs, and of each of so many GPUs."""

    cpu_milli: int
    gpus: int
    gpu_milli: int

    @property
    def request_milli(self) -> int:
        """Thousandths of GPUs, of all together."""
        return self.gpus * self.gpu_milli


class Node(NamedTuple):
    """A machine with equal GPUs."""

    name: str
    cpu_milli: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster's nodes in the order of their names, and pods in the order of the file. Equal pods are one object."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]

    @property
    def capacity_milli(self) -> int:
        """Thousandths of GPUs that all nodes have."""
        return sum(node.gpus for node in self.nodes) * MILLI


def load(folder: Path, workload: str) -> Trace:
    """The nodes and the pods of `workload` from `folder`.

    Raises:
        TraceError: a file is not there or not as it should be.
    """
    nodes = read_nodes(folder / NODES)
    return Trace(nodes, read_pods(folder / pods_file(workload), nodes))


def pods_file(workload: str) -> str:
    """The name of the file with the pods of a workload."""
    return f"openb_pod_list_{workload}.csv"


def is_published(folder: Path, workload: str) -> bool:
    """Whether both files are byte for byte those of which figures are published."""
    files = (NODES, pods_file(workload))
    return all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == SHA256.get(name) for name in files)


def read_nodes(file: Path) -> tuple[Node, ...]:
    """All nodes with GPUs, in the order of their names."""
    nodes: dict[str, Node] = {}
    for where, row in _rows(file, _NODE_COLUMNS):
        node = Node(row["sn"], _count(row, "cpu_milli", where), _count(row, "gpu", where), row["model"])
        if node.name in nodes:
            msg = f"{where}: there is another node with the name {node.name}."
            raise TraceError(msg)
        if node.gpus and node.model not in GPU_MEMORY_MIB:
            msg = f"{where}: nobody knows the memory of a GPU {node.model!r}; known are {', '.join(GPU_MEMORY_MIB)}."
            raise TraceError(msg)
        nodes[node.name] = node
    if not any(node.gpus for node in nodes.values()):
        msg = f"{file.name} has no node with a GPU."
        raise TraceError(msg)
    return tuple(nodes[name] for name in sorted(nodes))


def read_pods(file: Path, nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
    """All pods; each fits on an empty node of `nodes`, and some ask for a GPU."""
    known: dict[Pod, Pod] = {}
    pods = []
    for where, row in _rows(file, _POD_COLUMNS):
        pod = Pod(*(_count(row, column, where) for column in _POD_COLUMNS[1:]))
        if pod not in known:
            _check(pod, nodes, where)
        pods.append(known.setdefault(pod, pod))
    if not any(pod.request_milli for pod in known):
        msg = f"{file.name} has no pod that asks for a GPU."
        raise TraceError(msg)
    return tuple(pods)


def _check(pod: Pod, nodes: tuple[Node, ...], where: str) -> None:
    """An error for a pod that nothing can ever host, or whose columns contradict each other."""
    most = max(node.gpus for node in nodes)
    if pod.gpu_milli > MILLI:
        problem = f"gpu_milli is {pod.gpu_milli}, and a GPU has {MILLI}"
    elif pod.gpus > most:
        problem = f"num_gpu is {pod.gpus}, and no node has more than {most} GPUs"
    elif (pod.gpus == 0) != (pod.gpu_milli == 0):
        problem = f"num_gpu is {pod.gpus} and gpu_milli is {pod.gpu_milli}: either both are 0 or none is"
    elif pod.gpus > 1 and pod.gpu_milli != MILLI:
        problem = f"gpu_milli is {pod.gpu_milli} of each of {pod.gpus} GPUs: several GPUs are had whole"
    elif not any(node.gpus >= pod.gpus and node.cpu_milli >= pod.cpu_milli for node in nodes):
        problem = f"cpu_milli is {pod.cpu_milli}, and no node with {pod.gpus} GPUs has as much"
    else:
        return
    msg = f"{where}: {problem}."
    raise TraceError(msg)


def _rows(file: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row with where it is, as an error names it."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines, strict=True)
            lacking = [column for column in columns if column not in (reader.fieldnames or ())]
            if lacking:
                msg = f"{file.name}, line 1: the column {lacking[0]} is missing."
                raise TraceError(msg)
            for row in reader:
                where = f"{file.name}, line {reader.line_num}"
                empty = [column for column in columns if not row[column]]
                if empty:
                    msg = f"{where}: {empty[0]} has no value."
                    raise TraceError(msg)
                yield where, row
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}."
        raise TraceError(msg) from error
    except (csv.Error, UnicodeDecodeError) as error:
        msg = f"{file.name} is no CSV file in UTF-8: {error}."
        raise TraceError(msg) from error


def _count(row: dict[str, str], column: str, where: str) -> int:
    """A whole number, not below zero."""
    text = row[column]
    if not (text.isascii() and text.isdigit()):
        msg = f"{where}: {column} is {text!r}, and should be a whole number that is not negative."
        raise TraceError(msg)
    return int(text)
