"""The administrator's numbers: `nls_config.py` or `nls_config.json` in Jupyter's configuration path, then flags."""

from __future__ import annotations

import grp
import json
import math
import pwd
from ast import literal_eval
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from traitlets import Bool, Dict, Enum, Float, Int, TraitError, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader
from traitlets.utils import expand_path

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Placement
from nls_scheduler.daemon.bounds import Bounds
from nls_scheduler.daemon.http.addresses import parse_address
from nls_scheduler.daemon.poller import PollRates
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.requests.pool_config import check_rules, parse_pools
from nls_scheduler.requests.queue_config import NOBODY_S_ID, parse_queues
from nls_scheduler.requests.submission import Defaults
from nls_scheduler.units.nearest import nearest
from nls_scheduler.units.sizes import parse_size
from nls_scheduler.views.veil import Access

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nls_scheduler.views.veil import ShowNames

SECTION: Final = "NlsScheduler"
_POLICY: Final = Policy()
_RATES: Final = PollRates()
_DEFAULTS: Final = Defaults()
_SETTINGS: Final = DaemonSettings()
_AT_LEAST_ONE: Final = (
    "max_failures",
    "max_workloads_per_gpu",
    "max_connections",
    "max_connections_per_user",
    "max_followers_per_user",
    "max_workloads_per_user",
    "max_submissions_at_once",
)
_EXAMPLES: Final[dict[object, str]] = {
    "pools": "\"{'a100': {'gpus': ['0', '1']}}\"",
    "queues": "\"{'research': {'quota': 2}}\"",
    Bool: "True",
    Float: "7.5",
    Int: "5",
}
"""Of values as a shell's user writes them, by the setting's name or type."""
_NOT_THE_TRAIT_S: Final = (ValueError, TypeError, TraitError, SyntaxError, MemoryError, RecursionError)
"""What a text leads to that is no value of its setting."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message is one sentence that says which value and why."""


class NlsScheduler(Configurable):
    """What `c.NlsScheduler.NAME = VALUE` and `nls up --set NAME=VALUE` can change. Times are in seconds."""

    reclaim_deadline_s = Float(
        _POLICY.reclaim_deadline_s, help="A guaranteed request is there after this long at the latest."
    ).tag(config=True)
    interrupt_grace_s = Float(
        _POLICY.interrupt_grace_s,
        help="A cell that must yield is interrupted this long before the deadline, at most half of it.",
    ).tag(config=True)
    freeze_cells = Bool(
        _POLICY.freeze_cells,
        help="A running cell that must yield is frozen before it would be interrupted, where its GPU process's driver "
        "can do that: it stands still, and goes on when its GPU has room again. So far tried on an H100 alone.",
    ).tag(config=True)
    freeze_timeout_s = Float(
        _POLICY.freeze_timeout_s,
        help="It is frozen this long before it would be interrupted; where there is less than twice as long until "
        "then, after half of that.",
    ).tag(config=True)
    stop_grace_s = Float(_POLICY.stop_grace_s, help="Part of the deadline kept for stopping a process.").tag(
        config=True
    )
    min_residency_s = Float(_POLICY.min_residency_s, help="Who bursts keeps its GPU at least this long.").tag(
        config=True
    )
    residency_per_move = Float(
        _POLICY.residency_per_move, help="Or so many times as long as its last move took, if that is longer."
    ).tag(config=True)
    min_gain = Float(
        _POLICY.min_gain, help="A move for burst alone must raise the share of what somebody may burst by this much."
    ).tag(config=True)
    max_moves_per_hour = Int(
        _POLICY.max_moves_per_hour, help="Moves of one workload for burst alone within an hour; 0: none."
    ).tag(config=True)
    cool_down_s = Float(_POLICY.cool_down_s, help="Between two moves of one workload for burst alone.").tag(config=True)
    starvation_s = Float(
        _POLICY.starvation_s, help="Smaller requests may pass a larger one by for this long; then room is kept for it."
    ).tag(config=True)
    max_moved_for_one = Int(
        _POLICY.max_moved_for_one,
        help="At most so many others leave their GPUs for a newcomer that finds no home beside them, for each GPU that "
        "it asks for; once it has waited for starvation_s, as many as it takes.",
    ).tag(config=True)
    max_workloads_per_gpu = Int(
        _POLICY.max_workloads_per_gpu,
        allow_none=True,
        help="Nobody comes to a GPU to burst where so many are; who is at home there may be more. None for no cap.",
    ).tag(config=True)
    placement = Enum(
        [placement.value for placement in Placement],
        _POLICY.placement.value,
        help="Where burstable workloads go: spread over idle GPUs, or binpack: everybody at home.",
    ).tag(config=True)
    idle_suspend_s = Float(
        None, allow_none=True, help="An idle notebook is suspended after this long; None: only when room is wanted."
    ).tag(config=True)
    cordoned_idle_s = Float(
        _POLICY.cordoned_idle_s,
        allow_none=True,
        help="On a cordoned node of a cluster an idle notebook is suspended after this long, one after another; None: "
        "a cordon changes nothing for whoever is there.",
    ).tag(config=True)
    oversubscribe = Float(
        _POLICY.oversubscribe,
        help="Bound on the sum of requests at home on a GPU, in GPUs. Above 1.0 requests are on demand: a cell may "
        "have to wait for the end of another's.",
    ).tag(config=True)
    pools = Dict(
        help="GPUs with rules of their own, by name: gpus (UUIDs, indexes, product names with *), enabled, placement, "
        "max_workloads_per_gpu, idle_suspend_s, oversubscribe, freeze_cells. The settings of the same names are the "
        "default pool's."
    ).tag(config=True)
    queues = Dict(
        help="Who may have how much, by name: parent, priority, quota, limit, over_quota_weight, max_priority, users, "
        "groups. GPUs by pool, as {'v100': 10}; a number alone is for the pool default. Without any queue a priority "
        "only says who goes first."
    ).tag(config=True)
    start_timeout_s = Float(
        _POLICY.start_timeout_s, help="A GPU process that is not ready after this long is stopped, and started anew."
    ).tag(config=True)
    suspend_timeout_s = Float(
        _POLICY.suspend_timeout_s,
        help="A suspend that no guarantee waits for has failed after this long: its GPU process goes on.",
    ).tag(config=True)
    stop_timeout_s = Float(
        _POLICY.stop_timeout_s,
        help="A process that is ended is gone after this long, and its memory free after as long again; else its GPU "
        "gets nobody new.",
    ).tag(config=True)
    max_failures = Int(_POLICY.max_failures, help="Failures in a row before a workload counts as failed.").tag(
        config=True
    )
    trim_timeout_s = Float(_POLICY.trim_timeout_s, help="Allocators have this long to give back their caches.").tag(
        config=True
    )
    allocation_wait_s = Float(
        _POLICY.allocation_wait_s, help="An allocation that failed within its limit waits for room at most this long."
    ).tag(config=True)
    reconnect_grace_s = Float(
        _POLICY.reconnect_grace_s, help="After a restart of the daemon notebooks and commands have this long to report."
    ).tag(config=True)
    default_request = Unicode(_DEFAULTS.request, help="Request of a notebook that asks for none.").tag(config=True)
    default_limit = Unicode(_DEFAULTS.limit, help="Limit of a notebook that asks for none.").tag(config=True)
    poll_interval_s = Float(_RATES.workloads_s, help="Between two samples of the GPUs' memory.").tag(config=True)
    poll_releasing_s = Float(_RATES.releasing_s, help="The same while memory is being released.").tag(config=True)
    poll_empty_s = Float(_RATES.empty_s, help="The same while there is no workload.").tag(config=True)

    admin_group = Unicode("", help="Members of this group (name or number) may act on everybody's workloads.").tag(
        config=True
    )
    show_names = Enum(
        ["auto", "all", "own", "admins"],
        "auto",
        help="Who reads the names of other users' workloads: all, admins, or nobody (own); "
        "auto: admins on the system daemon, else all.",
    ).tag(config=True)
    max_connections = Int(_SETTINGS.max_connections, help="More are refused. Read at the start only.").tag(config=True)
    max_connections_per_user = Int(
        _SETTINGS.bounds.connections,
        allow_none=True,
        help="Of these, of one user; None: half. Root and the daemon's own user may have all. Read at the start only.",
    ).tag(config=True)
    max_followers_per_user = Int(
        _SETTINGS.bounds.followers,
        help="More requests for /v1/events of one user at the same time are refused; administrators' are not.",
    ).tag(config=True)
    max_workloads_per_user = Int(
        _SETTINGS.bounds.workloads,
        help="More are refused, administrators' as well. On Kubernetes a pod counts as a user.",
    ).tag(config=True)
    max_submissions_per_s = Float(
        _SETTINGS.bounds.submissions_per_s,
        help="Of one user, administrators as well; who submits more is told to wait, which nls run and notebooks do.",
    ).tag(config=True)
    max_submissions_at_once = Int(
        _SETTINGS.bounds.submissions_at_once, help="So many may come together before the number per second counts."
    ).tag(config=True)
    observe_address = Unicode(
        _SETTINGS.observe_address,
        help="/livez, /readyz and /metrics are also served here over TCP, as in 0.0.0.0:9475, or [::]:9475, which is "
        "IPv4 too; nowhere when empty. Read at the start only.",
    ).tag(config=True)
    client_timeout_s = Float(
        _SETTINGS.client_timeout_s, help="A client that is silent in mid-sentence is let go. Read at the start only."
    ).tag(config=True)

    def settings(self, *, shared: bool) -> DaemonSettings:
        """The checked values. Raises ConfigError for values that contradict each other or make no sense."""
        self._check()
        access = Access(_gid(self.admin_group), cast("ShowNames", self.show_names))
        return DaemonSettings(
            access=access.settled(shared=shared),
            max_connections=self.max_connections,
            bounds=self._bounds(),
            client_timeout_s=self.client_timeout_s,
            observe_address=self.observe_address,
            policy=self._policy(),
            defaults=Defaults(self.default_request, self.default_limit),
            rates=PollRates(self.poll_interval_s, self.poll_releasing_s, self.poll_empty_s),
        )

    def _bounds(self) -> Bounds:
        return Bounds(
            self.max_workloads_per_user,
            self.max_submissions_at_once,
            self.max_submissions_per_s,
            self.max_connections_per_user,
            self.max_followers_per_user,
        )

    def _policy(self) -> Policy:
        values = {field.name: getattr(self, field.name) for field in fields(Policy)}
        try:
            pools = parse_pools(self.pools)
            queues = parse_queues(self.queues, pools, _id_of_user, _id_of_group)
            rules = {"placement": Placement(self.placement), "pools": pools, "queues": queues}
            policy = Policy(**{**values, **rules})
            check_rules(policy.default_pool)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return policy

    def _check(self) -> None:
        for name, value in self.trait_values(config=True).items():
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} = {value} cannot be used: it must be a finite number, 0 or more.")
        for name in (
            "reclaim_deadline_s",
            "interrupt_grace_s",
            "start_timeout_s",
            "suspend_timeout_s",
            "stop_timeout_s",
            "client_timeout_s",
            "max_submissions_per_s",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} = 0 cannot be used: nothing could be done in that time.")
        for name in ("poll_interval_s", "poll_releasing_s", "poll_empty_s"):
            if getattr(self, name) < 0.01:
                raise ConfigError(f"{name} = {getattr(self, name)} cannot be used: the shortest is 0.01 s.")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) == 0:
                raise ConfigError(f"{name} = 0 cannot be used: it must be 1 or more.")
        if self.stop_grace_s >= self.reclaim_deadline_s:
            raise ConfigError(
                f"stop_grace_s = {self.stop_grace_s:g} contradicts reclaim_deadline_s = {self.reclaim_deadline_s:g}: "
                "the grace is a part of the deadline and must be shorter."
            )
        if self.observe_address:
            try:
                parse_address(self.observe_address)
            except ValueError as error:
                raise ConfigError(f"observe_address cannot be used: {error}") from error
        self._check_defaults()

    def _check_defaults(self) -> None:
        try:
            request, limit = parse_size(self.default_request), parse_size(self.default_limit)
        except ValueError as error:
            raise ConfigError(f"A default size cannot be used: {error}") from error
        if isinstance(request, float) == isinstance(limit, float) and request > limit:
            raise ConfigError(
                f"default_request = {self.default_request} contradicts default_limit = {self.default_limit}: "
                "a limit is at least the request."
            )


def load(
    assignments: Sequence[str],
    config_path: Sequence[str],
    *,
    shared: bool = False,
    defaults: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> DaemonSettings:
    """The settings from the files in `config_path` (first wins) and `NAME=VALUE` flags. Raises ConfigError.

    `shared`: for the system daemon, which many users share. `defaults`: other ones than usual; `cluster`: a cluster's
    settings, which come before the files and after the flags.
    """
    for name in sorted(_SETTINGS.read_at_start.keys() & (cluster or {}).keys()):
        raise ConfigError(
            f"{name} is read at the daemon's start only, and the cluster's policy later: write it among the daemon's "
            f"own arguments, as --set={name}=…."
        )
    config = Config({SECTION: dict(defaults or {})})
    config.merge(read_files(config_path))
    config.merge(Config({SECTION: dict(cluster or {})}))
    config.merge(_from_flags(assignments))
    _check_names(config[SECTION])
    try:
        return NlsScheduler(config=config).settings(shared=shared)
    except TraitError as error:
        raise ConfigError(str(error)) from error
    except OverflowError as error:
        raise ConfigError(f"A number of the configuration is out of all bounds: {error}.") from error


def places() -> list[str]:
    """Jupyter's path of configurations; where nobody's home is known, that of the environment and the machine."""
    from jupyter_core import paths  # slow, and not always needed

    try:
        return paths.jupyter_config_path()
    except RuntimeError:
        return [*paths.ENV_CONFIG_PATH, *paths.SYSTEM_CONFIG_PATH]


def read_files(config_path: Sequence[str]) -> Config:
    """What the files in `config_path` say, the first of which wins. Raises ConfigError."""
    config = Config()
    for directory in reversed(config_path):
        config.merge(_read(directory))
    return config


def _read(directory: str) -> Config:
    config = Config()
    for kind, name in ((PyFileConfigLoader, "nls_config.py"), (JSONFileConfigLoader, "nls_config.json")):
        path = Path(expand_path(str(Path(directory, name))))
        try:
            if not _is_there(path):
                continue
            if kind is JSONFileConfigLoader and path.is_file():
                _check_json(path)
            found = kind(name, directory).load_config()
            _check_sections(found)
        except ConfigFileNotFound:
            raise ConfigError(f"The configuration {path} cannot be read: it is no file.") from None
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # A configuration file is Python: anything may come out of it.
            reason = str(error) or type(error).__name__
            reason = reason if isinstance(error, Exception) else f"it ends Python ({reason})"
            raise ConfigError(f"The configuration {path} cannot be read: {reason}") from error
        config.merge(found)
    return config


def _check_json(path: Path) -> None:
    """Traitlets takes a list for an empty configuration. Raises ConfigError, and ValueError for what is no JSON."""
    if not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
        raise ConfigError(f'it is no object: write {{"{SECTION}": {{"reclaim_deadline_s": 10}}}}.')


def _is_there(path: Path) -> bool:
    """Whether anything has this name. Raises OSError where that cannot be told, as in a folder of somebody else's."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_sections(found: Config) -> None:
    """Nothing that is written for the daemon is passed over. Raises ConfigError."""
    for name, section in found.items():
        if name != SECTION:
            raise ConfigError(f"it says something of {name}, and all settings are {SECTION}'s.")
        if not isinstance(section, Config):
            raise ConfigError(f"what it says of {SECTION} is no settings with their values.")
        _check_names(section)


def _check_names(names: Iterable[str]) -> None:
    known = NlsScheduler.class_trait_names(config=True)
    for name in sorted(set(names) - set(known)):
        close = nearest(name, known)
        advice = f"did you mean {close}?" if close else f"there are {', '.join(sorted(known))}."
        raise ConfigError(f"There is no setting {name!r}: {advice}")


def _from_flags(assignments: Sequence[str]) -> Config:
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not NAME=VALUE: write for example --set reclaim_deadline_s=10.")
        _check_names([name])
        trait = NlsScheduler.class_traits(config=True)[name]
        try:
            if isinstance(trait, Dict):
                values[name] = trait.validate(None, literal_eval(text))
            else:
                values[name] = trait.from_string(text)
        except _NOT_THE_TRAIT_S as error:
            example = _EXAMPLES.get(name) or _EXAMPLES.get(type(trait), trait.default())
            raise ConfigError(f"{name} cannot be {text!r}: write for example --set {name}={example}.") from error
    return Config({SECTION: values})


def _id_of_user(user: str | int) -> int:
    """Of one whose account was deleted, nobody's: that keeps no daemon from starting."""
    try:
        return _number(user) if str(user).isdecimal() else pwd.getpwnam(str(user)).pw_uid
    except KeyError:
        return NOBODY_S_ID


def _id_of_group(group: str | int) -> int:
    try:
        return _number(group) if str(group).isdecimal() else grp.getgrnam(str(group)).gr_gid
    except KeyError:
        return NOBODY_S_ID


def _number(named: str | int) -> int:
    if int(named) >= NOBODY_S_ID:
        raise ValueError("no user and no group has so large a number.")
    return int(named)


def _gid(group: str) -> int | None:
    try:
        number = _id_of_group(group) if group else None
    except ValueError as error:
        raise ConfigError(f"admin_group = {group!r} cannot be used: {error}") from error
    if number == NOBODY_S_ID:
        raise ConfigError(f"admin_group = {group!r} cannot be used: this machine has no such group.")
    return number
