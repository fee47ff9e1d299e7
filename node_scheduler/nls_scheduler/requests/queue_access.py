"""Which queue a workload is in, who may say so, and with which priority. Pure; every refusal is one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.model.priorities import parse_priority, priority_word
from nls_scheduler.core.model.queues import DEFAULT, Tree
from nls_scheduler.core.planning.homes.queue_ledger import Ledger
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.wire.errors import Problem, impossible, malformed
from nls_scheduler.wire.protocol import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.policy import Policy
    from nls_scheduler.core.model.queues import Queue
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

_SHOWN: int = 100


@dataclass(frozen=True, slots=True)
class Who:
    """The user who asks, as the socket says.

    Attributes:
        uid: the user.
        gids: all groups of its process.
        administrator: may use every queue and every priority.
    """

    uid: int
    gids: frozenset[int] = frozenset()
    administrator: bool = False


def priority_in(body: Mapping[str, Any], default: int) -> int:
    """The field `priority`: a number or a name. Raises Problem."""
    if "priority" not in body:
        return default
    try:
        return parse_priority(body["priority"])
    except ValueError as error:
        raise malformed(f"The field 'priority' is {error}") from None


def queue_in(body: Mapping[str, Any], default: str | None, policy: Policy, who: Who) -> str:
    """The field `queue`. Without it `default`, or (`None`) the first queue that names the user. Raises Problem."""
    tree, given = Tree(policy.queues), body.get("queue")
    if given is None:
        return _own_queue(tree, who) if default is None else default
    if not isinstance(given, str) or not given:
        raise malformed("The field 'queue' is the name of a queue.")
    if not tree.is_leaf(given):
        leaves = ", ".join(name for name in tree.queues if tree.is_leaf(name))
        what = "has queues in it" if given in tree.queues else "is not on this node"
        raise impossible(f"The queue {clean_text(given)[:_SHOWN]!r} {what}: choose from {leaves}.")
    if given != default and not who.administrator:
        _check_open(tree.queues[given], who)
    return given


def _own_queue(tree: Tree, who: Who) -> str:
    named = (q for q in tree.queues.values() if (q.uids or q.gids) and q.is_open_to(who.uid, who.gids))
    return next((queue.name for queue in named if tree.is_leaf(queue.name)), DEFAULT)


def _check_open(queue: Queue, who: Who) -> None:
    if not queue.is_open_to(who.uid, who.gids):
        detail = f"The queue {queue.name!r} is for other users: name one that is open to you, or ask an administrator."
        raise Problem(403, "Not your queue", detail)


def check_priority(spec: WorkloadSpec, policy: Policy, who: Who) -> None:
    """Raises Problem for a priority above what its queue gives to its users; administrators may set any."""
    tree = Tree(policy.queues)
    for queue in () if who.administrator else tree.chain(tree.leaf(spec.queue)):
        if queue.max_priority is not None and spec.priority > queue.max_priority:
            highest = priority_word(queue.max_priority)
            detail = f"In the queue {queue.name!r} a priority is at most {highest}, not {spec.priority}: ask for less."
            raise Problem(403, "Priority too high", detail)


def check_limits(state: NodeState, spec: WorkloadSpec, instead_of: Workload | None = None) -> None:
    """Raises Problem where `spec`, or all of its gang at once, is more than the limits of its queue can ever hold.

    Who is still to come is taken to ask for as little as the smallest member known.
    """
    if not state.policy.queues:
        return
    others = [w for w in state.workloads.values() if w.release_reason is None and w is not instead_of]
    key = key_of(spec)
    known = [spec, *(w.spec for w in others if key is not None and key_of(w.spec) == key)]
    smallest = min(known, key=lambda each: each.request_bytes * each.gpu_count)
    never = Ledger(state).beyond_limits([*known, *[smallest] * (spec.gang_size - len(known))])
    if never:
        told = "; ".join(sentence(why, Names.of(state)) for why in never)
        raise impossible(f"{told[0].upper()}{told[1:]}. Ask for less, or name another queue.")


def check_growth(state: NodeState, workload: Workload, spec: WorkloadSpec) -> None:
    """Raises Problem where an admitted workload would take by a change what its queue would not admit.

    It could otherwise come in small and grow past every limit. One that waits may ask for anything that could ever fit.
    """
    if not state.policy.queues or not workload.home:
        return
    ledger = Ledger(state)
    firmer = workload.spec.preemptible and not spec.preemptible
    elsewhere = ledger.tree.leaf(spec.queue) != ledger.leaf(workload)
    if not (spec.request_bytes > workload.spec.request_bytes or firmer or elsewhere):
        return
    for other in state.workloads.values():
        if other.id != workload.id:
            ledger.count(other, other.home)
    if obstacles := ledger.obstacles(workload, workload.home, spec):
        why = sentence(obstacles[0].why, Names.of(state))
        raise impossible(f"The change is refused and nothing is changed: {why}.")
