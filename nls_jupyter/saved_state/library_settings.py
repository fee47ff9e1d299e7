"""Settings and random numbers of well-known libraries, each only where the library is imported."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_libraries() -> tuple[Aspect, ...]:
    """What is kept of libraries."""
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
