"""Everything that the code can say has a topic, and each message leads to its own."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon_process import ROOT
from nls_jupyter.between import errors
from nls_scheduler.cli import main
from nls_scheduler.cli.explain import render as explained
from nls_scheduler.cli.status import render as status_text
from nls_scheduler.cli.topics import sought, topic_of_reason, topic_of_refusal, topics
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.requests.submission import Defaults, submission
from nls_scheduler.views.sentences import shape
from nls_scheduler.wire import locate, trust
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SOURCES = [*ROOT.glob("node_scheduler/**/*.py"), *ROOT.glob("server_extension/**/*.py")]


def once(words: list[str]) -> bool:
    return max(Counter(words).values()) == 1


def test_every_kind_of_reason_has_one_topic() -> None:
    explained_kinds = [kind for topic in topics() for kind in topic.reasons]
    assert set(Reason) - set(explained_kinds) == set()
    assert once([kind.value for kind in explained_kinds])


def titles(path: Path) -> Iterator[str]:
    """Of all problem objects that a module makes; a title with a name of its own as what that stands for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
            title = node.args[1]
            if isinstance(title, ast.Constant):
                yield str(title.value)
            elif isinstance(title, ast.Name) and title.id in named:
                yield str(named[title.id])


def test_every_refusal_has_one_topic() -> None:
    there = {title for path in SOURCES for title in titles(path)}
    assert len(there) > 30
    assert {title for title in there if topic_of_refusal(title) is None} == set()
    written = [title for topic in topics() for title in topic.refusals]
    assert set(written) - there == set()
    assert once(written)


@pytest.mark.parametrize("body", [{"request": "8Gb/s"}, {"request": "1.5"}, {"gang": "g1"}, {"pools": "a,,a"}])
def test_a_mistyped_request_leads_to_the_topic_about_requests(body: dict[str, str]) -> None:
    gpus = [Gpu(GpuUuid("a"), 0, "Simulated", 2**34)]
    with pytest.raises(Problem) as refused:
        submission({"kind": "command", **body}, 1000, gpus, Defaults(), set(), Policy())
    assert topic_of_refusal(refused.value.title) == "cannot-be"


def test_everything_that_a_cell_raises_has_one_topic() -> None:
    raised = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type)
        and issubclass(kind, (errors.GpuError, KeyboardInterrupt))
        and kind.__module__ == errors.__name__
    }
    written = [name for topic in topics() for name in topic.errors]
    assert set(written) == raised - {"GpuError"}
    assert once(written)


@pytest.mark.parametrize("module", [locate, trust])
def test_what_is_said_where_no_daemon_answers_leads_to_its_topic(module: ModuleType) -> None:
    """By the texts themselves, with a word for whatever is filled in."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    said = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "DaemonUnreachable"]
    assert said
    for text in said:
        parts = text.values if isinstance(text, ast.JoinedStr) else [text]
        message = "".join(str(part.value) if isinstance(part, ast.Constant) else "/run/x" for part in parts)
        assert [topic.name for topic in sought(message)] == ["no-daemon"], message


def test_what_may_be_missing_leaves_one_gap_in_the_shape_of_a_sentence() -> None:
    assert shape(Reason.NEEDED) == "… needs …"
    assert [kind for kind in Reason if "……" in shape(kind)] == []


@pytest.mark.parametrize("kind", [kind for kind in Reason if shape(kind).strip("…")])
def test_a_sentence_leads_to_its_topic(kind: Reason) -> None:
    message = shape(kind).replace("…", "GPU 0")
    assert [topic.name for topic in sought(message)] == [topic_of_reason(kind)]


@pytest.mark.parametrize(
    ("message", "topic"),
    [
        ("training needs GPU 1", "needed"),
        ("nls: stopping sh: other needs GPU 1", "needed"),
        ("Moved from GPU 1 to GPU 0 because training needs GPU 1 (2 GPU variables, 96 B).", "needed"),
        ("alice needs 2 GPUs", "needed"),
        ("suspended by its user", "said"),
        ("released by an administrator", "said"),
        ("restarted by its user", "said"),
        ("exited with code 0", "ended"),
        ("was killed by SIGTERM", "ended"),
        ("no GPU within 2 s (--max-wait)", "waits"),
        ("It is back as of cell [5]: cell [6] ran after it and is not in it.", "gpu-process-died"),
        ("the GPU process was killed by SIGKILL (signal 9), as the out-of-memory killer does", "gpu-process-died"),
        ("GpuProcessDied: the GPU process exited with code 3. It is back as of cell [5]: …", "gpu-process-died"),
        ("GpuUnavailable: This node has no pool 'a100'. The cell did not run.", "gpu-unavailable"),
        ("GpuUnavailable: this node has no pool 'a100' (more: nls help cannot-be)", "cannot-be"),
        ("GpuUnavailable: This node has no pool 'a100': choose from default.", "pools"),
        ("GpuEvicted: the GPU was taken back", "gpu-taken-back"),
        ("GpuEvicted: the GPU was taken back: b needs GPU 1. It is back as of cell [5]: …", "gpu-taken-back"),
        ("GpuTransferFailed: 'f' cannot be pickled. The cell did not run.", "gpu-transfer"),
        ("GpuUsageError: there is no %gpu reqest: did you mean %gpu request?", "gpu-usage"),
        ("nls: No GPU of this node has 20 GiB; the largest has 16 GiB. (more: nls help cannot-be)", "cannot-be"),
        ("No such GPU: there is no GPU 7", "not-there"),
        ("Why they wait: nls help waits", "waits"),
        ("It would use 382 MiB, above its limit of 300 MiB; `%gpu request --limit 382MiB` raises that.", "memory"),
    ],
)
def test_a_message_as_it_is_pasted_leads_to_its_topic(message: str, topic: str) -> None:
    assert [found.name for found in sought(message)] == [topic]


def test_topics_are_short_have_one_word_and_say_what_helps() -> None:
    for topic in topics():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", topic.name)
        assert topic.title
        assert topic.text.count("**What helps:**") == 1
        assert len(topic.text.splitlines()) < 16
        assert "<!--" not in topic.text
    assert once([topic.name for topic in topics()])


@pytest.mark.parametrize(
    "words",
    ["reserved", "Reserved", "room-reserved", "room is reserved for training-7, which comes before it"],
)
def test_a_topic_is_found_by_its_name_a_kind_and_a_message(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *words.split()]) == 0
    told = capsys.readouterr().out
    assert told.startswith("reserved: the room is kept for somebody who has waited longer\n")
    assert "  room is reserved for …, which comes before it\n" in told
    assert "What helps: patience" in told


def test_a_whole_log_is_no_topic_and_that_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A way to look for sentences that goes back and forth takes hours for it: the tests' own limit would end it."""
    assert main(["help", "x " * 50_000]) == 2
    assert len(capsys.readouterr().err) < 5000


def test_help_lists_topics_and_commands_and_says_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{topic.name} " in listed for topic in topics())
    assert main(["help", "run"]) == 0
    assert capsys.readouterr().out.startswith("usage: nls run")
    assert main(["help", "starvation_s"]) == 0
    assert capsys.readouterr().out.startswith("reserved: ")
    assert main(["help", "kubectl"]) == 0
    assert main(["help", "GpuEvicted"]) == 0
    assert main(["help", "No", "such", "GPU"]) == 0
    assert "not-there: " in capsys.readouterr().out
    assert main(["help", "xyzzy"]) == 2
    assert "there is no topic 'xyzzy'" in capsys.readouterr().err


def test_status_explain_and_errors_name_the_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {
        "name": "a", "id": "b", "phase": "queued", "waiting_s": 1.0, "priority": "0", "steps": [], "queue": None,
        "gpus": [], "ahead": [], "advice": [], "reason_kind": "room-reserved",
    }  # fmt: skip
    assert explained(told).endswith("\n\nMore: nls help reserved")
    waits = {
        "name": "a", "phase": "queued", "executing": False, "kind": "command", "position": 1, "gpus": [],
        "home": [], "gpu_count": 1, "request_bytes": 1, "limit_bytes": 1, "memory_used_bytes": 0, "reason": "no",
        "id": "b", "reason_kind": "no-room",
    }  # fmt: skip
    status = {"simulated": False, "message": None, "gpus": [], "workloads": [waits, waits]}
    assert "Why they wait: nls help waits" in status_text(status).splitlines()
    assert "nls help" not in status_text({**status, "workloads": [{**waits, "reason_kind": None}]})
    assert main(["--socket", str(tmp_path / "none.sock"), "status"]) == 3
    assert capsys.readouterr().err.endswith("(more: nls help no-daemon)\n")
