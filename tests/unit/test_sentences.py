"""Every reason as its sentence, once; and what another user reads in it."""

from __future__ import annotations

import ast
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon_process import ROOT
from nls_scheduler.cli.topics import sought, topic_of_reason
from nls_scheduler.core.model import reasons
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.reasons import NOTHING, Mention, Reason, Why, said, said_before
from nls_scheduler.views.sentences import Names, Parts, parts, sentence
from nls_scheduler.views.veil import HIDDEN_REASON, SEES_ALL, Viewer
from stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 2**30
ANNA, BERT = 1000, 1001
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
LABELS = {A: "GPU 0", B: "GPU 1"}
ALICE, BOB = Mention("w1", "alice", "notebook", ANNA), Mention("w2", "bob", "command", BERT)
POD = Mention("uid-7", "default/train", "pod")


def label(gpus: tuple[GpuUuid, ...]) -> str:
    return " and ".join(LABELS.get(uuid, uuid) for uuid in gpus)


def told(why: Why, viewer: Viewer = SEES_ALL) -> str:
    return sentence(why, Names(label, viewer))


HOME = Why(Reason.HOME, gpus=(B,))
YIELDS_NOT = Why(Reason.NOBODY_YIELDS)
DIED = Why(Reason.GANG_MEMBER_ENDED, who=(ALICE,), names=("red",), because=(said("killed by SIGKILL"),))
HELD = Why(Reason.HELD, gpus=(A,), who=(ALICE, BOB))
SHARE = Why(Reason.QUEUE_SHARE, names=("a", "default"), numbers=(2.0, 1.5))
LIMIT = Why(Reason.QUEUE_LIMIT, names=("a", "default"), numbers=(2.5, 2.5))
HOLDS = Why(Reason.HOLDS, who=(ALICE,), bytes=(12 * GIB, 4 * GIB))
STRANGERS = Why(Reason.STRANGERS_HOLD, bytes=(3 * GIB,))
MANY = tuple(Mention(f"w{number}", f"n{number}", "notebook", ANNA) for number in range(9))
MANY_HELD = Why(
    Reason.NO_ROOM,
    bytes=(8 * GIB,),
    numbers=(1, 0),
    because=tuple(Why(Reason.HELD, gpus=(GpuUuid(f"GPU-{number}"),), who=MANY) for number in range(25)),
)
MANY_HELD_READS = "no room for 8 GiB on one GPU: {}; {}; {}; 22 more reasons".format(
    *(f"GPU-{number} is held by n0 and n1 and n2 and n3 and n4 and n5 and n6 and 2 more" for number in range(3))
)

LEFT_OUT = Why(Reason.LEFT_OUT)
OUT = Why(Reason.OUT_OF_SERVICE, gpus=(A,), because=(LEFT_OUT,))
TABLE = [
    (said("exited with code 3"), "exited with code 3"),
    (Why(Reason.AT_HOME, gpus=(A, B), bytes=(4 * GIB,)), "at home on GPU 0 and GPU 1, 4 GiB guaranteed"),
    (Why(Reason.AT_HOME_WITH_BURST, gpus=(A,), bytes=(8 * GIB,)), "at home on GPU 0, may use up to 8 GiB"),
    (
        Why(Reason.BORROWS, gpus=(A,), bytes=(8 * GIB,), because=(HOME,)),
        "borrows GPU 0 to burst up to 8 GiB; its home is GPU 1",
    ),
    (HOME, "its home is GPU 1"),
    (Why(Reason.MORE_ROOM, gpus=(B,)), "GPU 1 has more room to burst"),
    (Why(Reason.GOES_HOME, gpus=(B,)), "GPU 1 is its home and has as much room to burst"),
    (Why(Reason.WISHED, gpus=(B,)), "its user wants it on GPU 1"),
    (Why(Reason.GROWS, gpus=(B,)), "GPU 1 is free for it as well"),
    (Why(Reason.GROWS, gpus=(A, B)), "GPU 0 and GPU 1 are free for it as well"),
    (
        Why(Reason.STAYS_AS_GUEST, gpus=(A,), because=(LIMIT,)),
        "stays on GPU 0 while nobody needs it: queue 'a' has 2.5 of the 2.5 GPUs of pool 'default' that it may have",
    ),
    (
        Why(Reason.STANDS_STILL, gpus=(A,), who=(BOB,), because=(Why(Reason.HELD, gpus=(A,), who=(BOB,)),)),
        "its running cell stands still for bob, in host memory, until GPU 0 takes it back: GPU 0 is held by bob",
    ),
    (
        Why(Reason.STANDS_STILL, gpus=(A,), because=(YIELDS_NOT,)),
        (
            "its running cell stands still, in host memory, until GPU 0 takes it back: nobody who holds a GPU can "
            "yield that much"
        ),
    ),
    (Why(Reason.FAILED_UNHEARD), "that failed while the daemon was away"),
    (
        Why(Reason.SUSPEND_FAILED, because=(said("OSError: no space left"),)),
        "it could not be suspended, which is tried again: OSError: no space left",
    ),
    (Why(Reason.NOT_SAVED, numbers=(120.0,)), "its variables were not saved within 2 min"),
    (Why(Reason.NOT_READY, numbers=(120.0,)), "its GPU process was not ready 2 min after it was started"),
    (
        Why(Reason.CELL_FIRST, because=(said("suspended by its user"),)),
        "it leaves once its cell has ended: suspended by its user",
    ),
    (Why(Reason.GOES_ON, gpus=(B,)), "GPU 1 takes its standing cell back"),
    (Why(Reason.NEEDED, gpus=(A,), who=(ALICE,)), "alice needs GPU 0"),
    (Why(Reason.NEEDED, gpus=(A,), who=(POD,)), "default/train needs GPU 0"),
    (
        Why(Reason.NEEDED, gpus=(A,), who=(ALICE,), because=(SHARE,)),
        "alice needs GPU 0: queue 'a' has 2 GPUs of pool 'default', its fair share is 1.5",
    ),
    (Why(Reason.NEEDED_WHILE_IDLE, gpus=(A,), who=(BOB,)), "idle, and a cell of bob needs GPU 0"),
    (Why(Reason.LEFT_TO, gpus=(A,), who=(BOB,)), "it left GPU 0 to bob; its next cell brings it back"),
    (Why(Reason.OFF), "it has left its GPU; its next cell brings it back"),
    (Why(Reason.BURST_NEEDED, gpus=(A,), who=(BOB,)), "its burst on GPU 0 was needed for bob"),
    (Why(Reason.BURST_NEEDED_BY_REQUESTS, gpus=(A,)), "its burst on GPU 0 was needed for what is guaranteed there"),
    (Why(Reason.YIELDS, gpus=(A,), who=(BOB,)), "yields GPU 0 to bob when its turn ends"),
    (Why(Reason.IDLE, numbers=(600.0,)), "idle for 10 min"),
    (Why(Reason.CORDONED, numbers=(30.0,)), "this node is about to be emptied, and it was idle for 30 s"),
    (Why(Reason.ABOVE_LIMIT, bytes=(13 * GIB, 12 * GIB)), "it used 13 GiB, above its limit of 12 GiB"),
    (Why(Reason.MEMORY_SHORT), "memory is short on its GPU, and it holds more than its request"),
    (Why(Reason.WAITS), "waits for a GPU"),
    (
        Why(Reason.NO_ROOM, bytes=(8 * GIB,), numbers=(1, 1), because=(HELD,)),
        "no room for 8 GiB on one GPU: GPU 0 is held by alice and bob",
    ),
    (
        Why(Reason.NO_ROOM, bytes=(8 * GIB,), numbers=(2, 1), because=(HELD,)),
        "no room for 8 GiB on each of 2 GPUs: GPU 0 is held by alice and bob",
    ),
    (
        Why(Reason.NO_ROOM, bytes=(8 * GIB,), numbers=(1, 2), names=("red",), because=(HELD,)),
        ("no room for 8 GiB on one GPU for each of the 2 members of gang red at once: "
        "GPU 0 is held by alice and bob"),
    ),
    (
        Why(Reason.NO_ROOM, bytes=(8 * GIB,), numbers=(2, 3), names=("red",), because=(Why(Reason.NO_GPU), SHARE)),
        ("no room for 8 GiB on each of 2 GPUs for each of the 3 members of gang red at once: "
        "this node has no GPU in service; queue 'a' has 2 GPUs of pool 'default', its fair share is 1.5"),
    ),
    (
        Why(Reason.NO_ROOM, bytes=(8 * GIB,), numbers=(1, 1), names=("red",), because=(HELD,)),
        "no room for 8 GiB on one GPU for the one member of gang red: GPU 0 is held by alice and bob",
    ),
    (
        Why(Reason.MOVES_TOO_MANY, numbers=(300.0, 5)),
        "more than 5 would have to leave their GPUs for it, which they do once it has waited 5 min",
    ),
    (HELD, "GPU 0 is held by alice and bob"),
    (
        Why(Reason.HELD, gpus=(A,), who=(ALICE,), bytes=(12 * GIB,)),
        "GPU 0 is held by alice and other processes (12 GiB)",
    ),
    (Why(Reason.HELD, gpus=(A, B), bytes=(12 * GIB,)), "GPU 0 and GPU 1 are held by other processes (12 GiB)"),
    (Why(Reason.BEING_FREED, gpus=(A, B)), "GPU 0 and GPU 1 are being freed"),
    (Why(Reason.WOULD_LEAVE, gpus=(A,)), "as things are it would have to leave GPU 0 again at once"),
    (
        Why(Reason.RESTARTED, numbers=(3.0,)),
        "the daemon has started again, and waits 3 s for who runs to tell of itself",
    ),
    (Why(Reason.RESERVED, who=(BOB,)), "room is reserved for bob, which comes before it"),
    (
        Why(Reason.SAVED_ABOVE_REQUEST, bytes=(12 * GIB, 8 * GIB), because=(YIELDS_NOT,)),
        "its saved state of 12 GiB is more than its request of 8 GiB; nobody who holds a GPU can yield that much",
    ),
    (
        Why(Reason.USED_ABOVE_REQUEST, bytes=(9 * GIB, 8 * GIB), because=(YIELDS_NOT,)),
        "it used 9 GiB, more than its request of 8 GiB; nobody who holds a GPU can yield that much",
    ),
    (
        Why(Reason.ON_DEMAND, bytes=(8 * GIB,), because=(YIELDS_NOT,)),
        "its 8 GiB are there on demand only, and others use them; nobody who holds a GPU can yield that much",
    ),
    (Why(Reason.COMES_BACK), "it comes back when there is room or its next cell runs"),
    (YIELDS_NOT, "nobody who holds a GPU can yield that much"),
    (Why(Reason.KEPT_FOR, gpus=(A,), who=(BOB,)), "GPU 0 is kept for bob, whose cell has waited longer"),
    (Why(Reason.TURN_OF, gpus=(A,), who=(ALICE, BOB)), "GPU 0 is held by alice and bob, whose turn ends first"),
    (Why(Reason.NO_HOME), "its request fits on no GPU on paper"),
    (
        Why(Reason.QUEUE_TOO_SMALL, names=("a", "default"), numbers=(3.0, 2.0)),
        "it takes 3 GPUs of pool 'default' at once, and queue 'a' may have 2 at most: as things are it never gets that",
    ),
    (
        Why(Reason.QUEUE_TOO_SMALL, names=("a", "v", "red"), numbers=(3.0, 2.0)),
        "gang red takes 3 GPUs of pool 'v' at once, and queue 'a' may have 2 at most: as things are it never gets that",
    ),
    (
        Why(Reason.JOURNAL_LOST, numbers=(3.0,)),
        "the daemon has lost its journal, and waits 3 s for who runs to tell of itself",
    ),
    (Why(Reason.NO_HOME_YET), "the cluster's scheduler has not said yet which GPU its pod has"),
    (Why(Reason.HOME_ELSEWHERE, gpus=(GpuUuid("GPU-x"),)), "its home GPU-x is no GPU of this daemon"),
    (
        Why(Reason.HOME_OVERFULL, gpus=(A,)),
        "its home GPU 0 is over-full: the cluster's scheduler counts more there than it has",
    ),
    (Why(Reason.WOULD_EXCEED, gpus=(A,)), "the requests on GPU 0 would be more than it has"),
    (Why(Reason.WOULD_COST, who=(BOB,)), "bob would lose its guarantee"),
    (
        Why(Reason.HELD_BACK, because=(LIMIT, LIMIT)),
        ("queue 'a' has 2.5 of the 2.5 GPUs of pool 'default' that it may have; "
        "queue 'a' has 2.5 of the 2.5 GPUs of pool 'default' that it may have"),
    ),
    (LIMIT, "queue 'a' has 2.5 of the 2.5 GPUs of pool 'default' that it may have"),
    (
        Why(Reason.QUEUE_QUOTA, names=("a", "default"), numbers=(1.0, 1.25, 125)),
        ("with priority 125 it is not preemptible, which only a quota allows: "
        "queue 'a' has 1 of its 1.25 GPUs of pool 'default' in such use"),
    ),
    (SHARE, "queue 'a' has 2 GPUs of pool 'default', its fair share is 1.5"),
    (
        Why(Reason.QUEUE_SHARE, names=("a", "default"), numbers=(1.0, 1.5)),
        "queue 'a' has 1 GPU of pool 'default', its fair share is 1.5",
    ),
    (
        Why(Reason.QUEUE_LIMIT, names=("a", "default"), numbers=(0.5, 1.0)),
        "queue 'a' has 0.5 of the 1 GPU of pool 'default' that it may have",
    ),
    (
        Why(Reason.QUEUE_TOO_SMALL, names=("a", "default"), numbers=(1.0, 0.5)),
        ("it takes 1 GPU of pool 'default' at once, and queue 'a' may have 0.5 at most: "
        "as things are it never gets that"),
    ),
    (
        Why(Reason.QUEUE_QUOTA, names=("a", "default"), numbers=(0.5, 1.0, 125)),
        ("with priority 125 it is not preemptible, which only a quota allows: "
        "queue 'a' has 0.5 of its 1 GPU of pool 'default' in such use"),
    ),
    (Why(Reason.GANG_INCOMPLETE, numbers=(1, 4), names=("red",)), "waits for 1 of 4 members of gang red"),
    (
        Why(Reason.GANG_INCOMPLETE, numbers=(1, 4), names=("red",), because=(DIED,)),
        "waits for 1 of 4 members of gang red: alice of gang red has ended: killed by SIGKILL",
    ),
    (
        Why(Reason.GANG_CANNOT_RESTART, numbers=(2,), names=("red",)),
        "gang red cannot start again whole, 2 of its members ended well already",
    ),
    (Why(Reason.GANG_STARTS_AGAIN, names=("red",)), "gang red starts again when all of it has stopped"),
    (
        Why(Reason.GANG_STARTS_AGAIN, names=("red",), because=(DIED,)),
        "alice of gang red has ended: killed by SIGKILL; gang red starts again when all of it has stopped",
    ),
    (Why(Reason.GANG_WITHOUT_ROOM, names=("red",)), "not all of gang red have room"),
    (
        Why(Reason.GANG_MEMBER_WITHOUT_PLACE, who=(ALICE,), names=("red",)),
        "alice of gang red has no place now: all of it, or nobody",
    ),
    (DIED, "alice of gang red has ended: killed by SIGKILL"),
    (
        Why(Reason.GAVE_UP, numbers=(3,), because=(DIED,)),
        "gave up after 3 failures in a row: alice of gang red has ended: killed by SIGKILL",
    ),
    (Why(Reason.ENDED_UNHEARD), "it ended while the daemon was away"),
    (
        Why(Reason.ENDED_BY_DAEMON, because=(said("released by its user"),)),
        "released by its user; ended by the daemon, as its supervisor does not answer",
    ),
    (Why(Reason.OUT_OF_SERVICE, gpus=(A,)), "GPU 0 is out of service"),
    (Why(Reason.OUT_OF_SERVICE, gpus=(A, B)), "GPU 0 and GPU 1 are out of service"),
    (Why(Reason.USE_UNTOLD, gpus=(A, B)), "the driver does not tell how much of GPU 0 and GPU 1 is in use"),
    (
        Why(Reason.STAYS, gpus=(A,), bytes=(8 * GIB,), because=(OUT,)),
        (
            "stays on GPU 0 while it runs, may use up to 8 GiB; GPU 0 is out of service: the daemon was started "
            "without it"
        ),
    ),
    (Why(Reason.POOL_CLOSED, gpus=(A,), names=("a100",)), "GPU 0 is in the pool 'a100', which is not open to it"),
    (Why(Reason.ENDED_UNSEEN), "it ended unseen"),
    (Why(Reason.ADOPTED), "the daemon had lost its journal, and its supervisor told how it is"),
    (Why(Reason.BACK_IN_SERVICE, because=(said("Xid 79"),)), "in service again after: Xid 79"),
    (Why(Reason.NO_GPU), "this node has no GPU in service"),
    (Why(Reason.NO_GPU, names=("a100",)), "the pool 'a100' has no GPU in service"),
    (Why(Reason.NO_POOL, names=("a100", "h100")), "no pool 'a100' or 'h100' is configured any more"),
    (Why(Reason.POOL_OFF, names=("a100",)), "the pool 'a100' is off"),
    (Why(Reason.UNHEALTHY), "it is unhealthy"),
    (Why(Reason.VANISHED), "it has vanished"),
    (LEFT_OUT, "the daemon was started without it"),
    (Why(Reason.STUCK), "a process that was ended does not let go of its memory"),
    (Why(Reason.NOT_THERE), "this notebook's process does not run on that GPU now"),
    (
        Why(Reason.BEYOND_LIMIT, bytes=(21 * GIB // 2, 8 * GIB)),
        "it would use 10.5 GiB, above its limit of 8 GiB; %gpu request --limit 10.5GiB raises that",
    ),
    (  # what the command names is enough, and above the limit is above it
        Why(Reason.BEYOND_LIMIT, bytes=(8 * GIB + 4096, 8 * GIB)),
        "it would use 8.01 GiB, above its limit of 8 GiB; %gpu request --limit 8.01GiB raises that",
    ),
    (
        Why(Reason.BEYOND_ANY_GPU, bytes=(21 * GIB // 2, 8 * GIB)),
        "it would use 10.5 GiB, and the largest GPU that it may have has 8 GiB",
    ),
    (
        Why(Reason.BEYOND_ALLOWANCE, gpus=(A,), bytes=(8 * GIB, 4 * GIB, 10 * GIB), because=(HOLDS, STRANGERS)),
        ("it may use 8 GiB of GPU 0 now: its request of 4 GiB and its share of the rest (alice holds 12 GiB with a "
        "request of 4 GiB, processes that nobody placed hold 3 GiB); %gpu request 10GiB asks for that much, "
        "del what is not needed any more and %gpu trim give memory back"),
    ),
    (
        Why(Reason.ROOMIER_ELSEWHERE, gpus=(A, B), bytes=(8 * GIB, 4 * GIB), because=(HOLDS,)),
        ("it may use 8 GiB of GPU 0 now: its request of 4 GiB and its share of the rest (alice holds 12 GiB with a "
        "request of 4 GiB); GPU 1 has room for it, and it moves there when this cell has ended"),
    ),
    (
        Why(Reason.TOO_LITTLE_FREE, gpus=(A,), bytes=(GIB,), because=(Why(Reason.NOBODY_SEEN),)),
        ("1 GiB are free on GPU 0: nobody was seen there; "
        "del what is not needed any more and %gpu trim give memory back"),
    ),
    (Why(Reason.FREE, bytes=(4 * GIB,)), "4 GiB are free"),
    (HOLDS, "alice holds 12 GiB with a request of 4 GiB"),
    (STRANGERS, "processes that nobody placed hold 3 GiB"),
    (Why(Reason.NOBODY_SEEN), "nobody was seen there"),
    (MANY_HELD, MANY_HELD_READS),
]  # fmt: skip


@pytest.mark.parametrize(("why", "reads"), TABLE, ids=lambda value: value.kind if isinstance(value, Why) else "")
def test_a_reason_reads(why: Why, reads: str) -> None:
    assert told(why) == reads


def kinds(why: Why) -> Iterator[Reason]:
    yield why.kind
    for inner in why.because:
        yield from kinds(inner)


@pytest.mark.parametrize("viewer", [SEES_ALL, Viewer()])
@pytest.mark.parametrize("around", ["{}", "nls: stopping sh: {}", "Moved from GPU 1 to GPU 0 because {}."])
def test_nls_help_finds_every_sentence_as_it_is_read(around: str, viewer: Viewer) -> None:
    """By itself and within another; one that tells several reasons by one of them."""
    for why, _ in TABLE:
        message = around.format(told(why, viewer))
        found = [topic.name for topic in sought(message)]
        own = {topic_of_reason(kind) for kind in kinds(why)}
        if Reason.SAID in kinds(why):  # it may be a message that has a topic of its own
            own |= {topic.name for topic in sought("exited with code 3")}
        assert len(found) == 1, message
        assert found[0] in own, message


def test_gpus_are_called_as_on_their_node_and_one_that_has_vanished_by_its_uuid() -> None:
    state = Stage(2).node.state
    gpus = (*state.gpus, GpuUuid("GPU-x"))
    assert sentence(Why(Reason.BEING_FREED, gpus), Names.of(state)) == "GPU 0 and GPU 1 and GPU-x are being freed"


def test_every_kind_of_reason_has_its_row() -> None:
    assert {why.kind for why, _ in TABLE} == set(Reason)


def test_kinds_are_words_that_a_program_can_keep_to() -> None:
    assert [kind for kind in Reason if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind)] == []


@pytest.mark.parametrize(
    "make", [lambda: Why(Reason.NEEDED, text="bob needs GPU 0"), lambda: Why(Reason.WAITS, text=" ")]
)
def test_only_what_was_said_has_a_text(make: Callable[[], Why]) -> None:
    with pytest.raises(ValueError, match="text"):
        make()


def test_reasons_are_compared_by_what_they_say() -> None:
    assert Why(Reason.NEEDED, gpus=(A,), who=(ALICE,)) == Why(Reason.NEEDED, gpus=(A,), who=(ALICE,))
    assert Why(Reason.NEEDED, gpus=(A,), who=(ALICE,)) != Why(Reason.NEEDED, gpus=(B,), who=(ALICE,))
    assert said(said("once")) == said("once")


def test_only_a_reason_that_says_nothing_is_none() -> None:
    assert not NOTHING
    assert not said("")
    assert not said_before("")
    assert all(why for why, _ in TABLE)


@pytest.mark.parametrize(
    ("viewer", "reads"),
    [
        (SEES_ALL, "GPU 0 is held by alice and bob and default/train"),
        (Viewer(ANNA), "GPU 0 is held by alice and another user's command and another user's pod"),
        (Viewer(BERT), "GPU 0 is held by another user's notebook and bob and another user's pod"),
        (
            Viewer(ANNA, "t"),
            "GPU 0 is held by another user's notebook and another user's command and another user's pod",
        ),
        (Viewer(), "GPU 0 is held by another user's notebook and another user's command and another user's pod"),
    ],
)
def test_others_are_named_by_what_they_are(viewer: Viewer, reads: str) -> None:
    assert told(Why(Reason.HELD, gpus=(A,), who=(ALICE, BOB, POD)), viewer) == reads


def test_of_several_others_it_is_told_how_many_they_are() -> None:
    who = (BOB, ALICE, POD, BOB, ALICE, BOB)
    assert told(Why(Reason.HELD, gpus=(A,), who=who), Viewer()) == (
        "GPU 0 is held by 3 commands of other users and 2 notebooks of other users and another user's pod"
    )
    assert told(Why(Reason.HELD, gpus=(A,), who=who[:4]), Viewer(ANNA)) == (
        "GPU 0 is held by 2 commands of other users and alice and another user's pod"
    )


def about(why: Why, name: str) -> Why:
    """`why` with everybody in it called `name`, of one user."""
    who = tuple(Mention("w3", name, "notebook", BERT) for _ in why.who)
    return replace(why, who=who, because=tuple(about(inner, name) for inner in why.because))


@pytest.mark.parametrize("name", ["is", "a", "GPU", "held", "its", "{w.who}", "a.c (x)+", "%s"])
def test_no_name_changes_what_others_read(name: str) -> None:
    for why, _ in TABLE:
        assert told(about(why, name), Viewer(ANNA)) == told(about(why, "bob"), Viewer(ANNA))


def test_a_sentence_of_an_earlier_version_is_only_for_those_who_may_read_all_names() -> None:
    assert told(said_before("bob needs GPU 0")) == "bob needs GPU 0"
    assert told(said_before("bob needs GPU 0"), Viewer(ANNA)) == HIDDEN_REASON
    assert told(said("released by its user"), Viewer(ANNA)) == "released by its user"


EXAMPLES = ROOT / "labextension" / "samples" / "reasons.json"
WRITE = "PYTHONPATH=tests python -m unit.test_sentences"


def examples() -> list[dict[str, object]]:
    """Every reason as JupyterLab gets it, with the sentence that it has to be there."""
    viewers = [(SEES_ALL, TABLE), (Viewer(), [(HELD, ""), (said_before("bob needs GPU 0"), "")])]
    return [
        {"kind": why.kind.value, "sentence": told(why, viewer), "parts": parts(why, Names(label, viewer)).view()}
        for viewer, table in viewers
        for why, _ in table
    ]


def test_jupyterlab_s_tests_have_every_reason() -> None:
    assert json.loads(EXAMPLES.read_text(encoding="utf-8")) == examples(), WRITE
    assert {example["kind"] for example in examples()} == {reason.value for reason in Reason}


MESSAGES = ROOT / "labextension" / "src" / "daemonMessages.ts"
MESSAGES_HEAD = """/**
 * What the daemon's sentences are made of, for whoever collects messages to be translated; nobody calls this.
 *
 * Written by `PYTHONPATH=tests python -m unit.test_sentences`.
 */

import type { ITranslate } from './statusText';

// prettier-ignore
export const daemonMessages = (trans: ITranslate): string[] => [
"""


def templates() -> list[str]:
    """All there are: each kind of reason with one of everything and several, and with and without what is behind."""
    numbers = [(1.0, 2.0), (2.0, 3.0)]
    several = itertools.product([(A,), (A, B)], [("a", "p"), ("a", "p", "red")], [(), (HOME,), (HOME,) * 9], numbers)
    values = [(gpus, names, because, numbers) for gpus, names, because, numbers in several]
    made = [
        Why(
            kind,
            gpus=gpus,
            who=who,
            bytes=(GIB,) * 3,
            numbers=numbers if kind is Reason.NO_ROOM else (*numbers, 4.0),
            names=names,
            because=because,
        )
        for kind in Reason
        if kind is not Reason.SAID
        for gpus, names, because, numbers in values
        for who in ((ALICE,), MANY, (BOB, POD), (BOB, BOB, POD, POD))
        if kind is not Reason.ROOMIER_ELSEWHERE or len(gpus) > 1
    ]
    found = {HIDDEN_REASON}
    for viewer in (SEES_ALL, Viewer()):
        for why in [*made, *(why for why, _ in TABLE)]:
            found |= templates_in(parts(why, Names(label, viewer)))
    return sorted(found - {"%1"})


def templates_in(said: str | Parts) -> set[str]:
    return set() if isinstance(said, str) else {said.template}.union(*map(templates_in, said.arguments))


def messages() -> str:
    quoted = (template.replace("\\", "\\\\").replace("'", "\\'") for template in templates())
    return MESSAGES_HEAD + ",\n".join(f"  trans.__('{template}')" for template in quoted) + "\n];\n"


def test_who_translates_jupyterlab_finds_every_template() -> None:
    assert MESSAGES.read_text(encoding="utf-8") == messages(), WRITE
    assert {"%1 are held by %2", "%1; %2", "%1 and %2 more", "another user's notebook"} < set(templates())


def test_what_is_filled_into_a_template_never_changes_it() -> None:
    for why, _ in TABLE:
        if why.kind is not Reason.SAID:
            names = Names(label)
            assert parts(about(why, "%1 {w}"), names).template == parts(why, names).template


CORE = Path(reasons.__file__).parents[1]
NOT_FOR_USERS = {"invariants", "refusals", "simulator"}
"""What a defect is called, and what simulated supervisors say."""
A_SENTENCE = 3
"""Words, with what is put between them."""


def texts_of(tree: ast.AST) -> Iterator[str]:
    """What this code may tell: no docstrings, and nothing that is raised."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "this" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from texts_of(node)


def is_sentence(text: str) -> bool:
    return len([word for word in text.split() if any(letter.isalpha() for letter in word)]) >= A_SENTENCE


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_makes_no_sentences(path: Path) -> None:
    found = [text for text in texts_of(ast.parse(path.read_text())) if is_sentence(text)]
    assert found == [] or NOT_FOR_USERS & {part.removesuffix(".py") for part in path.relative_to(CORE).parts}


def test_a_sentence_in_the_code_is_found() -> None:
    code = '"""Not this one here."""\nif a:\n    raise ValueError("nor this one")\nb = f"{a} needs {a.label}"\n'
    assert [text for text in texts_of(ast.parse(code)) if is_sentence(text)] == ["this needs this"]


if __name__ == "__main__":
    EXAMPLES.write_text(json.dumps(examples(), indent=2) + "\n", encoding="utf-8")
    MESSAGES.write_text(messages(), encoding="utf-8")
