"""A cluster's trace, read from CSV for `benchmarks/allocation.py`: what is wrong with it is one sentence."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the benchmarks of a cluster's fragmentation count with NumPy")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import allocation
from fragmentation.trace import NODES, WORKLOADS, Node, Pod, TraceError, is_published, load, pods_file

NODE_LINES = "sn,cpu_milli,memory_mib,gpu,model\nb,16000,1,2,T4\na,8000,1,1,P100\n"
POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
PODS = f"{POD_HEAD}\np0,4000,9,1,500,\np1,2000,9,0,0,\np2,4000,9,1,500,\np3,8000,9,2,1000,\n"
TRACES = os.environ.get("NLS_TRACES")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / NODES).write_text(NODE_LINES)
    (tmp_path / pods_file("mine")).write_text(PODS)
    return tmp_path


def test_nodes_come_by_name_and_pods_as_in_the_file(folder: Path) -> None:
    trace = load(folder, "mine")
    assert trace.nodes == (Node("a", 8000, 1, "P100"), Node("b", 16000, 2, "T4"))
    assert trace.pods == (Pod(4000, 1, 500), Pod(2000, 0, 0), Pod(4000, 1, 500), Pod(8000, 2, 1000))
    assert trace.capacity_milli == 3000
    assert trace.pods[0] is trace.pods[2], "millions of rows of a few kinds take little memory"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("p,4000,9,1,,", "gpu_milli has no value"),
        ("p,4000,9", "num_gpu has no value"),
        ("p,-4,9,1,500,", "cpu_milli is '-4', and should be a whole number that is not negative"),
        ("p,4000,9,1,half,", "gpu_milli is 'half', and should be a whole number that is not negative"),
        ("p,4000,9,1,1200,", "gpu_milli is 1200, and a GPU has 1000"),
        ("p,4000,9,3,1000,", "num_gpu is 3, and no node has more than 2 GPUs"),
        ("p,4000,9,1,0,", "num_gpu is 1 and gpu_milli is 0: either both are 0 or none is"),
        ("p,4000,9,0,500,", "num_gpu is 0 and gpu_milli is 500: either both are 0 or none is"),
        ("p,4000,9,2,500,", "gpu_milli is 500 of each of 2 GPUs: several GPUs are had whole"),
        ("p,20000,9,1,500,", "cpu_milli is 20000, and no node with 1 GPUs has as much"),
    ],
)
def test_a_pod_that_cannot_be_is_an_error_with_its_line(folder: Path, row: str, problem: str) -> None:
    (folder / pods_file("mine")).write_text(f"{PODS}{row}\n")
    with pytest.raises(TraceError) as error:
        load(folder, "mine")
    assert str(error.value) == f"openb_pod_list_mine.csv, line 6: {problem}."


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ("", "openb_pod_list_mine.csv, line 1: the column name is missing."),
        ("name,cpu_milli,num_gpu\n", "openb_pod_list_mine.csv, line 1: the column gpu_milli is missing."),
        (f"{POD_HEAD}\n", "openb_pod_list_mine.csv has no pod that asks for a GPU."),
        (f"{POD_HEAD}\np,4000,9,0,0,\n", "openb_pod_list_mine.csv has no pod that asks for a GPU."),
        (f'{POD_HEAD}\n"p,4000,9,0,0,\n', "openb_pod_list_mine.csv is no CSV file in UTF-8: unexpected end of data."),
    ],
)
def test_a_file_of_pods_that_says_nothing_is_an_error(folder: Path, pods: str, problem: str) -> None:
    (folder / pods_file("mine")).write_text(pods)
    with pytest.raises(TraceError) as error:
        load(folder, "mine")
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (f"{NODE_LINES}a,1,1,1,T4\n", "openb_node_list_gpu_node.csv, line 4: there is another node with the name a."),
        (f"{NODE_LINES}c,1,1,1,X1\n", "openb_node_list_gpu_node.csv, line 4: nobody knows the memory of a GPU 'X1'"),
        ("sn,cpu_milli,gpu,model\nc,1,0,-\n", "openb_node_list_gpu_node.csv has no node with a GPU."),
    ],
)
def test_nodes_that_cannot_be_are_an_error(folder: Path, nodes: str, problem: str) -> None:
    (folder / NODES).write_text(nodes)
    with pytest.raises(TraceError) as error:
        load(folder, "mine")
    assert str(error.value).startswith(problem)


def test_what_is_not_there_or_no_text_is_an_error(folder: Path) -> None:
    with pytest.raises(TraceError, match=r"openb_pod_list_other\.csv cannot be read: No such file or directory\.$"):
        load(folder, "other")
    (folder / pods_file("mine")).write_bytes(b"name,cpu_milli\n\xff\xfe")
    with pytest.raises(TraceError, match=r"^openb_pod_list_mine\.csv is no CSV file in UTF-8"):
        load(folder, "mine")


def test_the_benchmark_says_what_is_wrong_in_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["allocation.py", "--workload", "mine"])
    monkeypatch.delenv("NLS_TRACES", raising=False)
    with pytest.raises(SystemExit, match=r"^NLS_TRACES has to name the folder"):
        allocation.main()
    monkeypatch.setenv("NLS_TRACES", str(folder))
    (folder / NODES).unlink()
    with pytest.raises(SystemExit, match=r"openb_node_list_gpu_node\.csv cannot be read"):
        allocation.main()


def test_figures_are_compared_with_published_ones_only_for_the_published_trace(folder: Path) -> None:
    assert not is_published(folder, "mine")
    (folder / pods_file("default")).write_text(PODS)
    assert not is_published(folder, "default")


@pytest.mark.skipif(TRACES is None, reason="NLS_TRACES does not name the published trace")
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_published_trace_is_the_one_whose_checksums_are_known(workload: str) -> None:
    folder = Path(str(TRACES))
    assert is_published(folder, workload)
    trace = load(folder, workload)
    assert (len(trace.nodes), len(trace.pods), trace.capacity_milli) == (1213, 8152, 6_212_000)
