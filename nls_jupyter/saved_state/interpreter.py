"""The state of the interpreter itself that a notebook depends on: random numbers, settings, folders, history.

Each aspect is kept by itself, so that one that fails is named and the others come back. Only libraries that are
imported have any state.
"""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.manifest import MissingName, describe
from nls_jupyter.saved_state.modules import UserModules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.saved_state.graph import Component

_NOT_THE_USERS = ("CUDA_VISIBLE_DEVICES", "NLS_")


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing to keep.

    Attributes:
        name: for the user.
        capture: its value now; `None` for nothing to keep.
        apply: the inverse, in a new process.
        module: whose state it is; without it being imported there is none.
        early: needed before objects are made.
    """

    name: str
    capture: Callable[[], Any]
    apply: Callable[[Any], Any]
    module: str | None = None
    early: bool = False


class Interpreter:
    """What is kept of this process beside the names. Made when the process starts: what is there then is not a change.

    Args:
        shell: IPython's, for its history and extensions; `None` outside of it.
    """

    def __init__(self, shell: Any = None) -> None:
        self._environment = dict(os.environ)
        self._shell = shell
        self._modules = UserModules()
        if shell is not None:
            self._modules.follow()
        self._aspects = [*self._of_process(), *_of_libraries(), *(self._of_shell() if shell is not None else ())]

    def capture(self) -> tuple[bytes, list[MissingName]]:
        """Everything, to be stored, and what could not be kept."""
        kept: dict[str, bytes] = {}
        missing = []
        for aspect in self._aspects:
            if aspect.module is not None and aspect.module not in sys.modules:
                continue
            try:
                value = aspect.capture()
                if value is not None:
                    kept[aspect.name] = pickle.dumps(value, protocol=5)
            except Exception as error:  # noqa: BLE001 - named, and the others are kept
                missing.append(MissingName(aspect.name, "setting", describe(error)))
        return pickle.dumps(kept, protocol=5), missing

    def apply(self, stored: bytes, *, early: bool) -> list[MissingName]:
        """Those that are needed before the names come back, or the others; what could not be applied."""
        kept: dict[str, bytes] = pickle.loads(stored)  # noqa: S301 - from this notebook's own process
        missing = []
        for aspect in self._aspects:
            if aspect.early != early or aspect.name not in kept:
                continue
            try:
                if aspect.module is not None:
                    importlib.import_module(aspect.module)
                aspect.apply(pickle.loads(kept[aspect.name]))  # noqa: S301 - see above
            except Exception as error:  # noqa: BLE001 - named, and the others are applied
                missing.append(MissingName(aspect.name, "setting", describe(error)))
        return missing

    def is_fresh(self, component: Component) -> bool:
        """Whether a component of `outputs` is as a new process makes it anyway."""
        return self._modules.is_fresh(component)

    def outputs(self) -> dict[str, Any]:
        """What is saved beside the user's names, by what tells it: the shell's last results, what modules hold."""
        return {**self._results(), **self._modules.names()}

    def _results(self) -> dict[str, Any]:
        if self._shell is None:
            return {}
        names = self._shell.user_ns
        results = {f"Out[{number}]": value for number, value in names.get("_oh", {}).items()}
        return results | {name: names[name] for name in ("_", "__", "___") if not isinstance(names.get(name, ""), str)}

    def put_outputs(self, outputs: Mapping[str, Any]) -> list[MissingName]:
        """The inverse of `outputs`; what could not be put where it was."""
        lost = self._modules.put({name: value for name, value in outputs.items() if ":" in name})
        if self._shell is not None:
            self._put_results(outputs)
        return lost

    def _put_results(self, outputs: Mapping[str, Any]) -> None:
        for name, value in outputs.items():
            if ":" in name:
                continue
            if name.startswith("Out["):
                number = int(name[4:-1])
                self._shell.user_ns["_oh"][number] = self._shell.user_ns[f"_{number}"] = value
            else:
                self._shell.user_ns[name] = value
                setattr(self._shell.displayhook, name, value)

    def _of_process(self) -> tuple[Aspect, ...]:
        return (
            Aspect("the working directory", os.getcwd, os.chdir, early=True),
            Aspect("sys.path", lambda: list(sys.path), _set_path, early=True),
            Aspect("os.environ", self._changed_environment, _set_environment, early=True),
            Aspect("warning filters", lambda: list(warnings.filters), _set_filters, early=True),
            Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, early=True),
            Aspect("Python's random state", random.getstate, random.setstate),
            Aspect("decimal's context", _decimal_context, _set_decimal_context, "decimal"),
        )

    def _changed_environment(self) -> dict[str, str | None] | None:
        """Variables that were set, changed or (`None`) removed since the process started."""
        before, now = self._environment, os.environ
        changed: dict[str, str | None] = {name: now.get(name) for name in before.keys() | now.keys()}
        changed = {
            name: value
            for name, value in changed.items()
            if value != before.get(name) and not name.startswith(_NOT_THE_USERS)
        }
        return changed or None

    def _of_shell(self) -> tuple[Aspect, ...]:
        return (
            Aspect("IPython's extensions", lambda: sorted(self._shell.extension_manager.loaded), self._load_extensions),
            Aspect("In", self._inputs, self._set_inputs),
        )

    def _load_extensions(self, names: list[str]) -> None:
        for name in names:
            if name not in self._shell.extension_manager.loaded:
                self._shell.extension_manager.load_extension(name)

    def _inputs(self) -> tuple[int, list[str]]:
        return self._shell.execution_count, list(self._shell.user_ns["_ih"])

    def _set_inputs(self, state: tuple[int, list[str]]) -> None:
        count, inputs = state
        self._shell.execution_count = count
        self._shell.user_ns["_ih"][:] = inputs  # the list that `In` is, too


def _decimal_context() -> Any:
    decimal = sys.modules["decimal"]
    context = decimal.getcontext()
    return context if repr(context) != repr(decimal.DefaultContext) else None


def _set_decimal_context(context: Any) -> None:
    sys.modules["decimal"].setcontext(context)


def _set_path(path: list[str]) -> None:
    sys.path[:] = path


def _set_environment(changed: Mapping[str, str | None]) -> None:
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says
    warnings._filters_mutated()  # type: ignore[attr-defined]  # or registries of modules would not see it


def _of_libraries() -> tuple[Aspect, ...]:
    return (
        Aspect("NumPy's random state", _numpy_random, _set_numpy_random, "numpy"),
        Aspect("NumPy's settings", _numpy_settings, _set_numpy_settings, "numpy"),
        Aspect("CuPy's random state", _cupy_random, lambda _: None, "cupy"),
        Aspect("PyTorch's random state", _torch_random, _set_torch_random, "torch"),
        Aspect("PyTorch's settings", _torch_settings, _set_torch_settings, "torch"),
        Aspect("matplotlib's rcParams", _rc_params, _set_rc_params, "matplotlib"),
        Aspect("pandas' options", _pandas_options, _set_pandas_options, "pandas"),
    )


def _numpy_random() -> Any:
    return sys.modules["numpy"].random.get_state(legacy=False)


def _set_numpy_random(state: Any) -> None:
    sys.modules["numpy"].random.set_state(state)


def _numpy_settings() -> Any:
    numpy = sys.modules["numpy"]
    return numpy.geterr(), numpy.get_printoptions()


def _set_numpy_settings(state: Any) -> None:
    numpy = sys.modules["numpy"]
    numpy.seterr(**state[0])
    numpy.set_printoptions(**{**state[1], "override_repr": state[1].get("override_repr")})


def _cupy_random() -> None:
    states = getattr(getattr(sys.modules["cupy"].random, "_generator", None), "_random_states", None)
    if states:  # somebody drew numbers
        raise NotImplementedError("cuRAND does not tell its state: its numbers begin anew")


def _torch_random() -> Any:
    torch = sys.modules["torch"]
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state().numpy(), [state.numpy() for state in on_devices]


def _set_torch_random(state: Any) -> None:
    torch = sys.modules["torch"]
    torch.set_rng_state(torch.from_numpy(state[0]))
    for number, on_device in enumerate(state[1][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(torch.from_numpy(on_device), number)


# Attributes below `torch.backends`; those that a version lacks are left alone.
_BACKEND_FLAGS = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32", "cudnn.benchmark", "cudnn.deterministic")


def _torch_settings() -> dict[str, Any]:
    torch = sys.modules["torch"]
    device = torch.get_default_device()
    return {
        "dtype": torch.get_default_dtype(),
        # The device that everybody has is none that somebody chose: setting it would cost at each call.
        "device": None if device.type == "cpu" else str(device),
        "grad": torch.is_grad_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "flags": {flag: _backend_flag(flag) for flag in _BACKEND_FLAGS},
    }


def _set_torch_settings(state: Mapping[str, Any]) -> None:
    torch = sys.modules["torch"]
    torch.set_default_dtype(state["dtype"])
    if state["device"] is not None:
        torch.set_default_device(state["device"])
    torch.set_grad_enabled(state["grad"])
    torch.set_float32_matmul_precision(state["precision"])
    if state["deterministic"] != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(state["deterministic"])  # imports the compiler, for seconds
    torch.autograd.set_detect_anomaly(state["anomaly"])
    for flag, value in state["flags"].items():
        if value is not None and value != _backend_flag(flag):
            holder, _, name = flag.rpartition(".")
            setattr(_backend(holder), name, value)


def _backend(path: str) -> Any:
    found: Any = sys.modules["torch"].backends
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _backend_flag(flag: str) -> bool | None:
    holder, _, name = flag.rpartition(".")
    value: bool | None = getattr(_backend(holder), name, None)
    return value


def _rc_params() -> dict[str, Any]:
    matplotlib = sys.modules["matplotlib"]
    # Read as a plain dict: asking for the backend would choose one.
    default = dict(dict.items(matplotlib.rcParamsDefault))
    now = dict(dict.items(matplotlib.rcParams))
    return {key: value for key, value in now.items() if key != "backend" and value != default.get(key)}


def _set_rc_params(changed: Mapping[str, Any]) -> None:
    sys.modules["matplotlib"].rcParams.update(changed)


def _pandas_options() -> dict[str, Any] | None:
    config = importlib.import_module("pandas._config.config")
    changed = {
        key: config.get_option(key)
        for key, option in config._registered_options.items()
        if key not in config._deprecated_options and config.get_option(key) != option.defval
    }
    return changed or None


def _set_pandas_options(changed: Mapping[str, Any]) -> None:
    config = importlib.import_module("pandas._config.config")
    for key, value in changed.items():
        config.set_option(key, value)
