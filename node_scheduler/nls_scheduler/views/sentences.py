"""The one place where a reason becomes a sentence, in the words that are right for whoever reads it. Pure."""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.units.sizes import format_amount, format_bytes, format_bytes_up, format_seconds
from nls_scheduler.views.veil import HIDDEN_REASON, SEES_ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.reasons import Mention, Why
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.views.veil import Viewer

NAMED_AT_MOST: Final = 8
"""Gpus or names in one list of a sentence: as many as most nodes have Gpus."""
REASONS_AT_MOST: Final = 4
"""Reasons in one: whoever wants all of them asks `nls explain`."""
_OWN_HELP: Final = "del what is not needed any more and %gpu trim give memory back"
_MAY_USE: Final = (
    "it may use {w.sizes[0]} of {w.labels[0]} now: its request of {w.sizes[1]} and its share of the rest ({w.listed})"
)

_SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.AT_HOME: "at home on {w.gpus}, {w.sizes[0]} guaranteed",
    Reason.AT_HOME_WITH_BURST: "at home on {w.gpus}, may use up to {w.sizes[0]}",
    Reason.BORROWS: "borrows {w.gpus} to burst up to {w.sizes[0]}; {w.because}",
    Reason.HOME: "its home is {w.gpus}",
    Reason.MORE_ROOM: "{w.gpus} has more room to burst",
    Reason.GOES_HOME: "{w.gpus} is its home and has as much room to burst",
    Reason.WISHED: "its user wants it on {w.gpus}",
    Reason.GROWS: "{w.gpus_are} free for it as well",
    Reason.STAYS: "stays on {w.gpus} while it runs, may use up to {w.sizes[0]}; {w.because}",
    Reason.STAYS_AS_GUEST: "stays on {w.gpus} while nobody needs it: {w.because}",
    Reason.NEEDED: "{w.who} needs {w.gpus}{w.colon}",
    Reason.NEEDED_WHILE_IDLE: "idle, and a cell of {w.who} needs {w.gpus}",
    Reason.LEFT_TO: "it left {w.gpus} to {w.who}; its next cell brings it back",
    Reason.OFF: "it has left its GPU; its next cell brings it back",
    Reason.BURST_NEEDED: "its burst on {w.gpus} was needed for {w.who}",
    Reason.BURST_NEEDED_BY_REQUESTS: "its burst on {w.gpus} was needed for what is guaranteed there",
    Reason.YIELDS: "yields {w.gpus} to {w.who} when its turn ends",
    Reason.IDLE: "idle for {w.seconds}",
    Reason.CORDONED: "this node is about to be emptied, and it was idle for {w.seconds}",
    Reason.ABOVE_LIMIT: "it used {w.at_least[0]}, above its limit of {w.sizes[1]}",
    Reason.MEMORY_SHORT: "memory is short on its GPU, and it holds more than its request",
    Reason.WAITS: "waits for a GPU",
    Reason.NO_ROOM: "no room for {w.demand}: {w.because}",
    Reason.HELD: "{w.gpus_are} held by {w.holders}",
    Reason.BEING_FREED: "{w.gpus_are} being freed",
    Reason.WOULD_LEAVE: "as things are it would have to leave {w.gpus} again at once",
    Reason.RESTARTED: "the daemon has started again, and waits {w.seconds} for who runs to tell of itself",
    Reason.RESERVED: "room is reserved for {w.who}, which comes before it",
    Reason.SAVED_ABOVE_REQUEST: (
        "its saved state of {w.at_least[0]} is more than its request of {w.sizes[1]}; {w.because}"
    ),
    Reason.USED_ABOVE_REQUEST: "it used {w.at_least[0]}, more than its request of {w.sizes[1]}; {w.because}",
    Reason.ON_DEMAND: "its {w.sizes[0]} are there on demand only, and others use them; {w.because}",
    Reason.COMES_BACK: "it comes back when there is room or its next cell runs",
    Reason.NOBODY_YIELDS: "nobody who holds a GPU can yield that much",
    Reason.KEPT_FOR: "{w.gpus} is kept for {w.who}, whose cell has waited longer",
    Reason.TURN_OF: "{w.gpus} is held by {w.who}, whose turn ends first",
    Reason.MOVES_TOO_MANY: (
        "more than {w.counts[1]} would have to leave their GPUs for it, which they do once it has waited {w.seconds}"
    ),
    Reason.NO_HOME: "its request fits on no GPU on paper",
    Reason.NO_HOME_YET: "the cluster's scheduler has not said yet which GPU its pod has",
    Reason.JOURNAL_LOST: "the daemon has lost its journal, and waits {w.seconds} for who runs to tell of itself",
    Reason.HOME_ELSEWHERE: "its home {w.gpus} is no GPU of this daemon",
    Reason.HOME_OVERFULL: "its home {w.gpus} is over-full: the cluster's scheduler counts more there than it has",
    Reason.WOULD_EXCEED: "the requests on {w.gpus} would be more than it has",
    Reason.WOULD_COST: "{w.who} would lose its guarantee",
    Reason.STANDS_STILL: (
        "its running cell stands still{w.for_whom}, in host memory, until {w.gpus} takes it back: {w.because}"
    ),
    Reason.FAILED_UNHEARD: "that failed while the daemon was away",
    Reason.CELL_FIRST: "it leaves once its cell has ended: {w.because}",
    Reason.SUSPEND_FAILED: "it could not be suspended, which is tried again: {w.because}",
    Reason.NOT_SAVED: "its variables were not saved within {w.seconds}",
    Reason.NOT_READY: "its GPU process was not ready {w.seconds} after it was started",
    Reason.GOES_ON: "{w.gpus} takes its standing cell back",
    Reason.HELD_BACK: "{w.because}",
    Reason.QUEUE_LIMIT: (
        "queue {w.names[0]!r} has {w.amounts[0]} of the {w.gpu_amounts[1]} of pool {w.names[1]!r} that it may have"
    ),
    Reason.QUEUE_TOO_SMALL: (
        "{w.taker} takes {w.gpu_amounts[0]} of pool {w.names[1]!r} at once, and queue {w.names[0]!r} may have "
        "{w.amounts[1]} at most: as things are it never gets that"
    ),
    Reason.QUEUE_QUOTA: (
        "with priority {w.counts[2]} it is not preemptible, which only a quota allows: queue {w.names[0]!r} has "
        "{w.amounts[0]} of its {w.gpu_amounts[1]} of pool {w.names[1]!r} in such use"
    ),
    Reason.QUEUE_SHARE: (
        "queue {w.names[0]!r} has {w.gpu_amounts[0]} of pool {w.names[1]!r}, its fair share is {w.amounts[1]}"
    ),
    Reason.GANG_INCOMPLETE: "waits for {w.counts[0]} of {w.counts[1]} members of gang {w.names[0]}{w.colon}",
    Reason.GANG_CANNOT_RESTART: (
        "{w.first}gang {w.names[0]} cannot start again whole, {w.counts[0]} of its members ended well already"
    ),
    Reason.GANG_STARTS_AGAIN: "{w.first}gang {w.names[0]} starts again when all of it has stopped",
    Reason.GANG_WITHOUT_ROOM: "not all of gang {w.names[0]} have room",
    Reason.GANG_MEMBER_WITHOUT_PLACE: "{w.who} of gang {w.names[0]} has no place now: all of it, or nobody",
    Reason.GANG_MEMBER_ENDED: "{w.who} of gang {w.names[0]} has ended: {w.because}",
    Reason.GAVE_UP: "gave up after {w.counts[0]} failures in a row: {w.because}",
    Reason.ENDED_UNHEARD: "it ended while the daemon was away",
    Reason.ENDED_BY_DAEMON: "{w.because}; ended by the daemon, as its supervisor does not answer",
    Reason.ENDED_UNSEEN: "it ended unseen",
    Reason.ADOPTED: "the daemon had lost its journal, and its supervisor told how it is",
    Reason.OUT_OF_SERVICE: "{w.gpus_are} out of service{w.colon}",
    Reason.USE_UNTOLD: "the driver does not tell how much of {w.gpus} is in use",
    Reason.NO_GPU: "{w.holder_of_none} has no GPU in service",
    Reason.NO_POOL: "no pool {w.any_name} is configured any more",
    Reason.POOL_OFF: "the pool {w.any_name} is off",
    Reason.POOL_CLOSED: "{w.gpus_are} in the pool {w.any_name}, which is not open to it",
    Reason.UNHEALTHY: "it is unhealthy",
    Reason.VANISHED: "it has vanished",
    Reason.LEFT_OUT: "the daemon was started without it",
    Reason.STUCK: "a process that was ended does not let go of its memory",
    Reason.BACK_IN_SERVICE: "in service again after: {w.because}",
    Reason.NOT_THERE: "this notebook's process does not run on that GPU now",
    Reason.BEYOND_LIMIT: (
        "it would use {w.at_least[0]}, above its limit of {w.sizes[1]}; %gpu request --limit {w.typed[0]} raises that"
    ),
    Reason.BEYOND_ANY_GPU: "it would use {w.at_least[0]}, and the largest GPU that it may have has {w.sizes[1]}",
    Reason.BEYOND_ALLOWANCE: f"{_MAY_USE}; %gpu request {{w.typed[2]}} asks for that much, {_OWN_HELP}",
    Reason.ROOMIER_ELSEWHERE: (
        f"{_MAY_USE}; {{w.labels[1]}} has room for it, and it moves there when this cell has ended"
    ),
    Reason.TOO_LITTLE_FREE: f"{{w.sizes[0]}} are free on {{w.gpus}}: {{w.listed}}; {_OWN_HELP}",
    Reason.FREE: "{w.sizes[0]} are free",
    Reason.HOLDS: "{w.who} holds {w.sizes[0]} with a request of {w.sizes[1]}",
    Reason.STRANGERS_HOLD: "processes that nobody placed hold {w.sizes[0]}",
    Reason.NOBODY_SEEN: "nobody was seen there",
}


_GANG_AT: Final[Mapping[Reason, int]] = {
    Reason.GANG_INCOMPLETE: 0,
    Reason.GANG_CANNOT_RESTART: 0,
    Reason.GANG_STARTS_AGAIN: 0,
    Reason.GANG_WITHOUT_ROOM: 0,
    Reason.GANG_MEMBER_WITHOUT_PLACE: 0,
    Reason.GANG_MEMBER_ENDED: 0,
    Reason.NO_ROOM: 0,
    Reason.QUEUE_TOO_SMALL: 2,
}
"""Which of a reason's names is a gang's, that of whom the reason is about."""
_HIDDEN_GANG: Final = "(another user's)"


class Names:
    """What Gpus and workloads are called for one viewer."""

    def __init__(
        self,
        label: Callable[[tuple[GpuUuid, ...]], str],
        viewer: Viewer = SEES_ALL,
        whose: Mention | None = None,
    ) -> None:
        """`label` gives what people call some Gpus, such as `GPU 0 and GPU 1`; `whose`: see `of`."""
        self.label = label
        self.viewer = viewer
        self._hides_gangs = whose is not None and not viewer.knows(whose)
        self._told: dict[int, tuple[Why, Parts]] = {}

    @classmethod
    def of(cls, state: NodeState, viewer: Viewer = SEES_ALL, whose: Mention | None = None) -> Names:
        """As the Gpus of `state` are called. Reasons about `whose` name its gang to who may read that."""
        return cls(state.label, viewer, whose)

    def in_words(self, why: Why) -> tuple[str, ...]:
        """The names of a reason; a gang's is its owner's."""
        at = _GANG_AT.get(why.kind)
        if not self._hides_gangs or at is None or at >= len(why.names):
            return why.names
        return (*why.names[:at], _HIDDEN_GANG, *why.names[at + 1 :])

    def part(self, mentioned: Mention) -> str | Parts:
        """A workload or a pod; that of another without its name."""
        name = self.viewer.calls(mentioned)
        return name if self.viewer.knows(mentioned) else Parts(name)

    def parts_of(self, mentioned: Sequence[Mention]) -> list[str | Parts]:
        """Several, each as it is called; of those of others only how many of each kind."""
        hidden = Counter(each.kind for each in mentioned if not self.viewer.knows(each))
        told: list[str | Parts] = []
        for each in mentioned:
            many = 0 if self.viewer.knows(each) else hidden.pop(each.kind, -1)
            if many > 1:
                told.append(Parts(f"%1 {each.kind}s of other users", (str(many),)))
            elif many >= 0:
                told.append(self.part(each))
        return told

    def told(self, why: Why) -> Parts:
        """As `parts`, once for what several reasons of one plan have behind them."""
        known = self._told.get(id(why))
        if known is None:
            known = self._told[id(why)] = (why, parts(why, self))  # the value stays, and with it its id
        return known[1]


def sentence(why: Why, names: Names) -> str:
    """`why` in English for whoever `names` is for."""
    return str(parts(why, names))


def told_of(whose: Mention, why: Why, names: Names) -> Parts:
    """What is said about `whose`; who may not read about it is only told that it is another's."""
    return names.told(why) if names.viewer.knows(whose) else Parts(HIDDEN_REASON)


@dataclass(frozen=True, slots=True)
class Parts:
    """A sentence, or a part of one, before its words are filled in.

    Attributes:
        template: English, with `%1` for the first argument; one of few, so that it can be translated.
        arguments: texts that are the same in all languages, and parts.
        spliced: belongs into the template that it is an argument of: a verb, or a part that may be missing.
    """

    template: str
    arguments: tuple[str | Parts, ...] = ()
    spliced: bool = False

    def __str__(self) -> str:
        """In English."""
        return re.sub(r"%(\d+)", lambda found: str(self.arguments[int(found[1]) - 1]), self.template)

    def __format__(self, _: str) -> str:
        return str(self)

    def view(self) -> dict[str, Any]:
        """As JSON."""
        arguments = [each if isinstance(each, str) else each.view() for each in self.arguments]
        return {"template": self.template, "arguments": arguments}


def shape(kind: Reason) -> str:
    """How sentences of that kind read, with `…` for what differs; nothing for what is passed on as it was said."""
    pieces = _pieces(_SENTENCES[kind]) if kind in _SENTENCES else []
    return re.sub("…+", "…", "".join(literal + ("…" if word else "") for literal, word in pieces))


def parts(why: Why, names: Names) -> Parts:
    """`why` for whoever `names` is for. What was said outside of the core is one part, as it was said.

    What may name others in its text is not told to who may not read it.
    """
    if why.kind is not Reason.SAID:
        return _filled(_SENTENCES[why.kind], _Words(why, names))
    return Parts("%1", (why.text,)) if all(map(names.viewer.knows, why.who)) else Parts(HIDDEN_REASON)


@functools.cache
def _pieces(text: str) -> list[tuple[str, Callable[[_Words], Any] | None]]:
    """Of one of our sentences: what stands there, and how the word behind it is found."""
    found: list[tuple[str, Callable[[_Words], Any] | None]] = []
    for literal, field_name, _, conversion in Formatter().parse(text):
        word = None if field_name is None else _word(field_name, quoted=conversion == "r")
        found.append((literal, word))
    return found


def _word(field_name: str, *, quoted: bool) -> Callable[[_Words], Any]:
    def found(words: _Words) -> Any:
        value, _ = Formatter().get_field(field_name, (), {"w": words})
        return repr(value) if quoted else value

    return found


def _filled(text: str, words: _Words) -> Parts:
    template, arguments = "", list[str | Parts]()
    for literal, word in _pieces(text):
        template += literal
        if word is None:
            continue
        value = word(words)
        if isinstance(value, Parts) and value.spliced:
            # A spliced part has one argument at most.
            template += value.template.replace("%1", f"%{len(arguments) + 1}")
            arguments += value.arguments
        else:
            arguments.append(value)
            template += f"%{len(arguments)}"
    return Parts(template, tuple(arguments))


def _joined(
    between: str, items: Sequence[str | Parts], at_most: int = NAMED_AT_MOST, with_more: str = "%1 and %2 more"
) -> str | Parts:
    """Some in one: the next is always put behind all before it, so that two templates do for any number.

    A sentence stays one that is read: of many the first are told, and how many more there are.
    """
    told = items if len(items) <= at_most else items[: at_most - 1]
    joined: str | Parts = ""
    for item in told:
        joined = item if joined == "" else Parts(f"%1{between}%2", (joined, item))
    return joined if told is items else Parts(with_more, (joined, str(len(items) - len(told))))


class _Words:
    """What stands in a sentence; only what it asks for is made."""

    def __init__(self, why: Why, names: Names) -> None:
        self._why = why
        self._called = names
        self.names = names.in_words(why)

    @property
    def who(self) -> str | Parts:
        return _joined(" and ", self._called.parts_of(self._why.who))

    @property
    def gpus(self) -> str | Parts:
        return _joined(" and ", self.labels)

    @property
    def gpus_are(self) -> Parts:
        return Parts("%1 is" if len(self._why.gpus) == 1 else "%1 are", (self.gpus,), spliced=True)

    @property
    def labels(self) -> list[str]:
        return [self._called.label((uuid,)) for uuid in self._why.gpus]

    @property
    def sizes(self) -> list[str]:
        return [format_bytes(size) for size in self._why.bytes]

    @property
    def typed(self) -> list[str]:
        """Sizes as a command line takes them, and none of them too small."""
        return [size.replace(" ", "") for size in self.at_least]

    @property
    def at_least(self) -> list[str]:
        """Sizes that are more than something: written out, they are still more than that."""
        return [format_bytes_up(size) for size in self._why.bytes]

    @property
    def amounts(self) -> list[str]:
        return [format_amount(number) for number in self._why.numbers]

    @property
    def gpu_amounts(self) -> list[Parts]:
        return [Parts("%1 GPU" if amount == "1" else "%1 GPUs", (amount,), spliced=True) for amount in self.amounts]

    @property
    def any_name(self) -> str | Parts:
        return _joined(" or ", [repr(name) for name in self.names])

    @property
    def holder_of_none(self) -> Parts:
        return Parts("the pool %1", (self.any_name,)) if self._why.names else Parts("this node")

    @property
    def counts(self) -> list[str]:
        return [str(round(number)) for number in self._why.numbers]

    @property
    def taker(self) -> Parts:
        """A gang by its name, behind those of a queue and its pool."""
        return Parts("gang %1", (self.names[2],)) if len(self.names) > 2 else Parts("it")

    @property
    def seconds(self) -> str:
        return format_seconds(self._why.numbers[0])

    @property
    def for_whom(self) -> Parts:
        """Who it is done for, if that is somebody."""
        return Parts(" for %1", (self.who,), spliced=True) if self._why.who else Parts("", spliced=True)

    @property
    def because(self) -> str | Parts:
        return _joined("; ", self._inner(), REASONS_AT_MOST, "%1; %2 more reasons")

    @property
    def listed(self) -> str | Parts:
        return _joined(", ", self._inner(), REASONS_AT_MOST)

    @property
    def colon(self) -> Parts:
        """What is behind it, after it."""
        return Parts(": %1", (self.because,), spliced=True) if self._why.because else Parts("", spliced=True)

    @property
    def first(self) -> Parts:
        """What is behind it, before it."""
        return Parts("%1; ", (self.because,), spliced=True) if self._why.because else Parts("", spliced=True)

    @property
    def holders(self) -> str | Parts:
        others = [Parts("other processes (%1)", (size,)) for size in self.sizes]
        return _joined(" and ", [*([self.who] if self._why.who else []), *others])

    @property
    def demand(self) -> Parts:
        """A size on so many Gpus; with a gang's name, for each of so many members."""
        gpus, members = self.counts
        size = self.sizes[0]
        wanted = Parts("%1 on one GPU", (size,)) if gpus == "1" else Parts("%1 on each of %2 GPUs", (size, gpus))
        for name in self.names:
            if members == "1":
                wanted = Parts("%1 for the one member of gang %2", (wanted, name))
            else:
                wanted = Parts("%1 for each of the %2 members of gang %3 at once", (wanted, members, name))
        return wanted

    def _inner(self) -> list[Parts]:
        return [self._called.told(why) for why in self._why.because]
