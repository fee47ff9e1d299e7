from __future__ import annotations

from dataclasses import replace
from typing import Any

from nls_jupyter.notebook.status_view import GpuStatus
from nls_jupyter.saved_state import Manifest, MissingName
from nls_jupyter.supervisor.saving import Saves

GPU = {
    "uuid": "GPU-1234",
    "index": 0,
    "name": "H<200>",
    "memory_total_bytes": 2**30,
    "memory_used_bytes": None,
    "healthy": False,
    "unplaced_bytes": 0,
}
OWN = {
    "id": "w",
    "name": "<b>.ipynb",
    "phase": "queued",
    "executing": False,
    "gpus": [],
    "current": [],
    "gpu_count": 1,
    "borrowed": False,
    "memory_used_bytes": 0,
    "request_bytes": 2**29,
    "limit_bytes": 2**30,
    "reason": "GPU 0 is held by <them>",
    "position": 1,
}


def status(**fields: Any) -> dict[str, Any]:
    return {"simulated": False, "message": None, "gpus": [GPU], "workloads": [OWN], **fields}


def test_the_headline_is_about_this_notebook() -> None:
    assert GpuStatus(status(), "w").headline() == "This notebook is queued, 1st in queue: GPU 0 is held by <them>."
    assert GpuStatus(status(simulated=True), None).headline() == (
        "Simulated GPUs. This notebook has no GPU: %%gpu or %gpu request asks for one."
    )


def test_the_headline_says_what_is_saved_and_what_a_kill_can_cost() -> None:
    saves = Saves(None, None, print)  # type: ignore[arg-type]  # nothing is saved here
    manifest = Manifest(0, (), (), "[5]")
    saves._cost_s = 1.25
    headline = GpuStatus(status(), "w", saves.summary(manifest, runs=True)).headline()
    bound = "which took 1.2 s; a kill takes at most 2 s of cells before its own with it."
    assert headline.endswith(f"<them>. The variables are saved as of cell [5], {bound}")
    saves._cost_s = 0.01
    assert saves.summary(manifest, runs=False) == "The variables are saved as of cell [5]."
    saves.within_s = float("inf")
    assert saves.summary(manifest, runs=True) == "The variables are saved as of cell [5]."
    lost = tuple(MissingName(name, "ndarray", "large", no_room=True) for name in ("a", "Out[3]", "b"))
    assert saves.summary(replace(manifest, missing=lost), runs=True) == (
        "The variables are saved as of cell [5], without a, b (%gpu vars says why)."
    )


def test_a_message_about_the_node_comes_before_and_hides_nothing() -> None:
    headline = GpuStatus(status(message="The journal was damaged."), "w").headline()
    assert headline.startswith("The journal was damaged. This notebook is queued")


def test_a_node_without_a_gpu_says_why_and_how_to_try_it_out() -> None:
    nothing = status(gpus=[], workloads=[], message="There is no NVIDIA driver.")
    assert repr(GpuStatus(nothing, None)) == (
        "There is no NVIDIA driver. To try it out without one, start a daemon with simulated GPUs: "
        "nls up --simulate 2x16GiB"
    )


def test_text_lines_up_and_tells_what_is_not_known() -> None:
    lines = repr(GpuStatus(status(), "w")).splitlines()
    assert lines[1] == "GPU 0 (H<200>): unknown of 1 GiB used, out of service"
    assert lines[4].startswith("→  <b>.ipynb  queued")
    assert lines[3].index("why") == lines[4].index("GPU 0 is held")


def test_what_is_guaranteed_on_each_of_several_gpus_is_no_sum() -> None:
    both = {**OWN, "gpus": ["GPU 0", "GPU 1"], "gpu_count": 2, "memory_used_bytes": 3 * 2**28}
    assert "768 MiB  2 x 512 MiB  2 x 1 GiB" in repr(GpuStatus(status(workloads=[both]), "w"))


def test_html_escapes_what_others_named() -> None:
    html = GpuStatus(status(), "w").as_html()
    assert "<b>" not in html
    assert "&lt;b&gt;.ipynb" in html
    assert "H&lt;200&gt;" in html


def test_html_draws_each_gpu_as_what_is_guaranteed_what_is_burst_and_what_is_free() -> None:
    gpu = {**GPU, "unplaced_bytes": 2**20}
    here = {**OWN, "current": ["GPU-1234"], "request_bytes": 2**28, "memory_used_bytes": 3 * 2**27}
    other = {**here, "id": "x", "name": "x" * 500, "request_bytes": 2**27, "memory_used_bytes": 0}
    html = GpuStatus(status(gpus=[gpu], workloads=[here, other]), "w").as_html()
    words = f"&lt;b&gt;.ipynb: 256 MiB guaranteed; &lt;b&gt;.ipynb: 128 MiB burst; {'x' * 500}: 128 MiB guaranteed; "
    assert f"aria-label='{words}1 MiB not placed; 511 MiB free'" in html
    assert [f"flex:{size} 1 0" in html for size in (2**28, 2**27, 2**20, 511 * 2**20)] == [True] * 4


def test_html_tells_no_burst_of_an_elastic_command_that_has_more_gpus_than_its_fewest() -> None:
    here = {**OWN, "current": ["GPU-1234", "GPU-5678"], "memory_used_bytes": 2**30}
    assert "burst" not in GpuStatus(status(workloads=[here]), "w").as_html()


def test_html_of_a_gpu_that_is_over_full_has_no_room_left() -> None:
    here = {**OWN, "current": ["GPU-1234"], "request_bytes": 2**31}
    assert "free'" not in GpuStatus(status(workloads=[here]), "w").as_html()


def test_json_is_the_status_itself() -> None:
    bundle = GpuStatus(status(), "w")._repr_mimebundle_()
    assert bundle["application/vnd.nls.status+json"] == {**status(), "own": "w"}


def test_html_tells_two_gpus_apart_by_their_uuids_and_breaks_no_figure() -> None:
    html = GpuStatus(status(gpus=[GPU, {**GPU, "uuid": "GPU-1234-'x", "index": 1}]), "w").as_html()
    assert "title='GPU-1234'" in html
    assert "title='GPU-1234-&#x27;x'" in html
    assert html.count("white-space:nowrap'>") == 3  # used, request and limit
    assert "<td style='text-align:left;white-space:nowrap'>512 MiB</td>" in html
