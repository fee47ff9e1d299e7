"""Functions that ask after a rule of the planner, and what they always answer when nobody cares for it any more."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mutants import Edit, Mutant, functions


@dataclass(frozen=True, slots=True)
class Predicate(Mutant):
    """A function that does nothing but return a constant.

    Attributes:
        constant: which, as it is written.
        rule: the sentence that no longer holds.
    """

    constant: str
    rule: str

    def told(self) -> str:
        """The rule, which no test holds."""
        return self.rule

    def edit(self, tree: ast.Module) -> Edit:
        """The whole body."""
        function = functions(tree).get(self.function)
        if function is None:
            raise LookupError(f"{self.file} has no function {self.function} any more, on which this hung: {self.rule}")
        body = ast.parse(f"lambda: {self.constant}", mode="eval").body.body
        return Edit(self.function, self.change, function, function, "body", None, [ast.Return(body)])


def _of(file: str, *rows: tuple[str, str, str]) -> list[Predicate]:
    """From rows of function, constant and rule."""
    return [Predicate(file, function, f"is always {constant}", constant, rule) for function, constant, rule in rows]


PREDICATES = [
    *_of(
        "core/model/gangs.py",
        ("Gang.whole", "True", "A gang starts when every member is here."),
        ("Gang.runs", "True", "A gang with a dead member stops whole."),
        ("Gang.may_start", "True", "A gang starts again when all of it has stopped."),
        ("Gang.done", "0", "A gang of which some have ended well cannot start again whole."),
        ("key_of", "None", "A gang starts together or not at all."),
        ("would_end", "False", "Members that are still starting end nobody who runs and would not start again."),
    ),
    *_of(
        "core/model/gpu.py",
        ("Gpu.has_foreigners", "False", "Nobody borrows where somebody is whom we do not look after."),
        ("Gpu.foreign_bytes", "0", "What nobody placed owns what it uses."),
        ("Gpu._owned_bytes", "0", "An owner has the part that a cluster's scheduler gave it."),
    ),
    *_of(
        "core/model/workload.py",
        ("Workload.stands_on", "None", "A cell that stands still goes on only on the Gpu where it was."),
        ("Workload.is_bound", "False", "A process that cannot move keeps its home."),
        ("Workload.waits_away", "False", "A cell that stands still away from its home is owed nothing there."),
    ),
    *_of(
        "core/planning/places/freezing.py",
        ("may_freeze", "False", "A running cell stands still before it is interrupted, where the driver can do that."),
        ("beside_bytes", "0", "Those that are frozen at once have to fit into host memory beside each other."),
        ("can_thaw", "False", "A cell that stands still goes on when there is room."),
    ),
    *_of(
        "core/model/policy.py",
        ("Policy.residency_s", "0.0", "A holder of burst keeps its Gpu for its residency."),
        ("Policy.ladder_s", "0.0", "A running cell is told and interrupted before it is stopped."),
    ),
    *_of(
        "core/model/queues.py",
        ("Queue.quota_in", "0.0", "Everybody gets their quota as far as they ask for it."),
        ("Queue.limit_in", "None", "Nobody is admitted beyond a limit."),
        ("Queue.weight_in", "1.0", "What is over quota is divided by weight."),
        ("Queue.is_open_to", "True", "A queue that names users is for those."),
    ),
    *_of(
        "core/model/pools.py",
        ("Pool.names", "False", "A Gpu belongs to the first pool that names it."),
        ("Pool.is_open_to", "True", "A workload stays within its pools."),
    ),
    *_of(
        "core/model/state.py",
        ("NodeState.quiet", "False", "Nothing is ordered before supervisors have reported."),
        ("NodeState.settling", "False", "Who runs when a journal is lost keeps its home: who is new waits for it."),
        ("NodeState.usable", "self.gpus", "A broken Gpu, or one whose memory is not known, gets nothing new."),
        ("NodeState.stuck", "frozenset()", "Memory that is not let go of in time puts the Gpu out of service."),
    ),
    *_of(
        "core/model/spec.py",
        ("WorkloadSpec.movable", "True", "One of several Gpus or of a gang is never moved, nor most commands."),
        ("WorkloadSpec.preemptible", "True", "From priority 100 on a workload is not preemptible."),
        ("WorkloadSpec.resizable", "True", "An elastic command that cannot start again keeps what it got."),
        ("WorkloadSpec.can_take_turns", "True", "Only notebooks take turns where more is promised than there is."),
    ),
    *_of(
        "core/model/workload.py",
        ("Workload.executing", "False", "Suspend and migrate happen between cells."),
        ("Workload.kept", "False", "While its user keeps it, only a guarantee takes a notebook off its Gpu."),
        ("Workload.within_request", "True", "Burst comes after every guarantee."),
    ),
    *_of("core/planning/claims.py", ("_expected", "()", "As many Gpus are kept free as devices are promised.")),
    *_of(
        "core/planning/places/guarantees.py",
        ("_apart", "{}", "Nobody leaves a Gpu for a gang of which somebody finds no place."),
    ),
    *_of(
        "core/planning/places/idleness.py",
        ("_leaves_cordoned", "{}", "Idle notebooks leave a cordoned node, one after another."),
        ("_cordoned_at", "None", "Idle notebooks leave a cordoned node, whoever is kept by its user later."),
        ("_idle_suspend_s", "None", "An idle notebook is suspended where its pool wants that."),
    ),
    *_of(
        "core/planning/gangs.py",
        ("resting", "{}", "A gang that is not whole is on no Gpu."),
        ("leave_together", "None", "A gang leaves whole or not at all."),
        ("have_room", "True", "A gang starts when all of it has room in fact, together."),
    ),
    *_of(
        "core/planning/homes/admission.py",
        ("Admission.give_up_incomplete", "[]", "All of a gang have homes, or none."),
        ("Admission.reserve_for", "None", "A larger request is passed by only until it has waited starvation_s."),
    ),
    *_of(
        "core/planning/homes/displacing.py",
        ("displace", "False", "A queue within its fair share takes room back."),
        ("_Attempt._takes", "0.0", "A gang takes no more back than its queue's fair share in all."),
    ),
    *_of(
        "core/planning/homes/elastic.py",
        ("grow", "None", "An elastic command grows onto Gpus that nobody wants."),
        ("shrink", "False", "Elastic commands give back for a guarantee what they have above their fewest."),
        ("keep_within_limit", "False", "An elastic command counts with all the Gpus that it has."),
        (
            "_grows_at",
            "0.0",
            "It grows onto Gpus that have been nobody's home for the cool-down, once it has run as long.",
        ),
    ),
    *_of(
        "core/planning/homes/paper.py",
        ("Paper.has_home_room", "True", "Requests at home on a Gpu stay within it."),
    ),
    *_of(
        "core/planning/homes/queue_ledger.py",
        ("Ledger.obstacle", "None", "What is not preemptible is only admitted within its queue's quota."),
        ("Ledger.beyond_limits", "()", "What the limits of a queue can never hold is told so."),
        ("Ledger._is_above", "False", "Only who stays within its fair share takes back, from who is above its own."),
        ("Ledger.may_displace", "True", "Who is not preemptible is never displaced."),
        ("comes_back", "True", "A priority never stops a command that would not start again by itself."),
    ),
    *_of(
        "core/planning/homes/repacking.py",
        ("repack", "False", "Homes are exchanged where a newcomer fits in no other way."),
    ),
    *_of(
        "core/planning/making_room/rooms.py",
        ("Rooms.requests_exceed", "False", "Requests now on a Gpu never exceed it."),
        ("Rooms.sizes_exceed", "False", "Where what is held does not fit beside the requests, the bursters yield."),
        ("Rooms.is_full_for", "False", "No Gpu takes more workloads than its pool allows."),
        ("Rooms.may_stay", "True", "Only a burstable workload is on a Gpu that is not its home."),
        ("Rooms.is_owed", "True", "Above oversubscribe 1.0 a request is there on demand."),
        ("Rooms.holds_guest", "False", "Who has lost its home stays as long as nobody needs its place."),
        ("has_room", "True", "No process starts before the driver shows its room free."),
        ("borrows_beside_a_stranger", "False", "Who borrows starts only where no process is seen that nobody placed."),
    ),
    *_of(
        "core/planning/making_room/victims.py",
        ("may_be_suspended_from", "state.at", "None is suspended for a burst soon after a suspend of it has failed."),
    ),
    *_of(
        "core/planning/places/burst_moves.py",
        ("moves_of_last_hour", "()", "A workload moves for burst no more often in an hour than the policy says."),
        ("may_move_from", "0.0", "Between two moves for burst alone there is a cool-down."),
    ),
    *_of(
        "core/planning/places/draft.py",
        ("Draft.harm", "()", "Who leaves is who is harmed least."),
        ("Draft.claimed_since", "None", "A guarantee sets a deadline."),
    ),
    *_of(
        "core/planning/places/exchanges.py", ("_may_leave_its_home", "True", "Homes are exchanged where all have room.")
    ),
    *_of(
        "core/planning/places/failed_allocations.py",
        ("_is_short", "False", "Caches make room before an allocation is refused."),
        ("roomier", "None", "Who was refused memory moves where it may use that much."),
    ),
    *_of(
        "core/planning/places/spreading.py",
        ("spread", "{}", "Bursters spread over the idle Gpus."),
        ("_may_move_for_burst", "True", "A move for burst waits for the end of the cell."),
    ),
    *_of(
        "core/planning/places/trims.py",
        ("is_due", "False", "Caches are given back before anybody leaves."),
        ("is_open", "False", "The next rung follows when the driver has shown what a trim freed."),
    ),
    *_of(
        "core/planning/places/turns.py",
        ("starves", "False", "Nobody gets the room that is kept for a cell that starves."),
        ("_may_yield", "True", "A running cell within its request yields to nobody's burst."),
        ("_yields_now", "True", "A holder keeps its Gpu to the end of its cell and of its residency."),
    ),
    *_of(
        "core/planning/places/under_way.py",
        ("chosen_together", "{}", "Several that were chosen together move as they were chosen."),
    ),
    *_of(
        "core/recording/of_a_gang.py",
        ("failures_with", "0", "After max_failures deaths in a row a gang is given up."),
    ),
    *_of(
        "core/recording/above_limit.py",
        ("above_limit", "False", "A process above its limit is dealt with after two samples."),
    ),
    *_of(
        "core/recording/of_a_workload.py",
        ("_answers", "True", "A late answer to an earlier order changes nothing."),
    ),
    *_of(
        "core/recording/of_the_node.py",
        ("_still_seen", "False", "Memory is free when the driver shows it, not when a process says so."),
    ),
    *_of(
        "core/orders/next_order.py",
        ("keep_limit", "None", "A process above its limit is trimmed, then evicted."),
        ("_interrupt_is_due", "True", "A cell has until interrupt_grace_s before the deadline to end by itself."),
        ("_overdue", "False", "A guarantee is there at its deadline."),
    ),
    *_of("requests/joining.py", ("refusal", "None", "A gang that could not fit on the empty node is refused at once.")),
    *_of(
        "requests/queue_access.py",
        ("check_growth", "None", "A change that its queue would not admit is refused."),
        ("check_limits", "None", "What the limits of its queue can never hold is refused at once."),
    ),
]
