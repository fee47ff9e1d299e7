"""What Keras was told for the whole process: settings, names of layers that are taken, objects that have a name."""

from __future__ import annotations

import collections
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import KERAS_STATE
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.places import Place, is_librarys_object

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

_NAMES: Final = "object_name_uids"
_GENERATOR: Final = "global_seed_generator"
# Of the plain values that Keras has for a process: whether it logs, filters tracebacks, loads what is unsafe.
_PLAIN: Final = (
    "interactive_logging",
    "traceback_filtering",
    "safe_mode_saving",
    "flash_attention",
    "global_random_seed",
)


def of_keras() -> tuple[Aspect, ...]:
    """Each where Keras is imported."""
    return (
        Aspect("Keras' settings", _settings, _set_settings, "keras"),
        Aspect("Keras' names of layers", _names, _set_names, "keras"),
        Aspect("Keras' random state", _random, _set_random, "keras"),
    )


def _keras() -> Any:
    return sys.modules["keras"]


def _settings() -> dict[str, Any] | None:
    state = KERAS_STATE.here(None)
    if state is None:
        return None
    config = _keras().config
    kept = {"floatx": config.floatx(), "epsilon": config.epsilon(), "image_data_format": config.image_data_format()}
    plain = {name: getattr(state, name) for name in _PLAIN if hasattr(state, name)}
    return {"set": kept, "plain": plain, "dtype": getattr(getattr(state, "dtype_policy", None), "name", None)}


def _set_settings(kept: Mapping[str, Any]) -> None:
    for name, value in kept["set"].items():
        getattr(_keras().config, f"set_{name}")(value)
    for name, value in kept["plain"].items():
        setattr(KERAS_STATE.here(), name, value)
    if kept["dtype"] is not None:
        _keras().config.set_dtype_policy(kept["dtype"])


def _names() -> dict[str, int] | None:
    """How often each name was given to a layer that has none of its own."""
    return dict(getattr(KERAS_STATE.here(None), _NAMES, None) or {}) or None


def _set_names(kept: Mapping[str, int]) -> None:
    setattr(KERAS_STATE.here(), _NAMES, collections.defaultdict(int, kept))


def _random() -> Any:
    """Of the generator of whoever names none, once somebody has asked it."""
    generator = getattr(KERAS_STATE.here(None), _GENERATOR, None)
    return None if generator is None else _keras().ops.convert_to_numpy(generator.state)


def _set_random(state: Any) -> None:
    generator = importlib.import_module("keras.src.random.seed_generator").global_seed_generator()
    generator.state.assign(state)


def place() -> Place:
    """Classes and functions that models are loaded with: `register_keras_serializable`, `get_custom_objects`."""
    return Place("custom object of Keras", _objects, _put, comes_by_itself=is_librarys_object)


def _objects() -> Iterator[tuple[Hashable, Entry]]:
    known = getattr(getattr(sys.modules.get("keras"), "utils", None), "get_custom_objects", dict)  # else being imported
    yield from ((name, (name, known_by_it)) for name, known_by_it in known().items())


def _put(name: str, known_by_it: Any) -> None:
    utils = importlib.import_module("keras").utils
    package, is_registered, own = name.partition(">")
    if is_registered:
        utils.register_keras_serializable(package, own)(known_by_it)
    else:
        utils.get_custom_objects()[name] = known_by_it
