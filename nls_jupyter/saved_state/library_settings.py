"""Settings and random numbers of well-known libraries, each only where the library is imported."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import operator
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state import allocator_settings, library_mappings
from nls_jupyter.saved_state.aspect import Aspect, of_mapping
from nls_jupyter.saved_state.manifest import NotKeptError
from nls_jupyter.saved_state.places import Place, name_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry


def of_libraries() -> tuple[Aspect, ...]:
    """What is kept of libraries, but for matplotlib's pictures."""
    return (
        Aspect("NumPy's random state", _numpy_random, _set_numpy_random, "numpy"),
        Aspect("NumPy's settings", _numpy_settings, _set_numpy_settings, "numpy"),
        Aspect("NumPy's buffer size", lambda: _of("numpy").getbufsize(), lambda n: _of("numpy").setbufsize(n), "numpy"),
        Aspect("CuPy's random state", _cupy_random, lambda _: None, "cupy"),
        Aspect("PyTorch's random state", _torch_random, _set_torch_random, "torch"),
        Aspect("PyTorch's settings", _torch_settings, _set_torch_settings, "torch"),
        Aspect(
            "PyTorch's threads",
            lambda: _of("torch").get_num_threads(),
            lambda n: _of("torch").set_num_threads(n),
            "torch",
        ),
        Aspect("PyTorch's print options", _torch_printing, _set_torch_printing, "torch"),
        Aspect("pandas' options", _pandas_options, _set_pandas_options, "pandas"),
        Aspect("tqdm.pandas()", _tqdm_of_pandas, _set_tqdm_of_pandas, "pandas"),
        Aspect("plotly's renderers", _plotly, _set_plotly, "plotly.io"),
        *(
            Aspect(f"{name}.apply()", functools.partial(_applied, name), lambda name: _of(name).apply(), name)
            for name in ("nest_asyncio", "nest_asyncio2")
        ),
        _options("xarray", "get_options", "set_options"),
        _options("sklearn", "get_config", "set_config"),
        _options("xgboost", "get_config", "set_config"),
        _options("scipy.special", "geterr", "seterr"),
        Aspect(
            "polars' settings",
            lambda: _of("polars").Config.save(),
            lambda kept: _of("polars").Config.load(kept),
            "polars",
        ),
        Aspect("Numba's threads", _numba_threads, lambda n: _of("numba").set_num_threads(n), "numba"),
        *map(_progress_bars, ("transformers.utils.logging", "diffusers.utils.logging", "datasets")),
        Aspect("altair's settings", _altair, _set_altair, "altair"),
        Aspect("dask's configuration", lambda: copy.deepcopy(_of("dask.config").config), _set_dask, "dask.config"),
        Aspect("bokeh's notebook mode", _bokeh, _set_bokeh, "bokeh.io"),
        *library_mappings.of_mappings(),
        *allocator_settings.of_allocators(),
        Aspect("JAX's settings", _jax, _set_jax, "jax"),
        Aspect("mpmath's precision", _mpmath, _set_mpmath, "mpmath"),
        Aspect("SymPy's printing", _sympy, _set_sympy, "sympy"),
        Aspect(
            "SymPy's assumptions",
            lambda: list(_of("sympy.assumptions").global_assumptions) or None,
            lambda kept: _of("sympy.assumptions").global_assumptions.add(*kept),
            "sympy",
        ),
    )


def _of(module: str) -> Any:
    return sys.modules[module]


def _options(module: str, getter: str, setter: str) -> Aspect:
    """Of a library that has all its options in one dict; those that differ are set, as keywords."""
    return of_mapping(
        f"{module}'s options",
        lambda: dict(getattr(_of(module), getter)()),
        lambda changed: getattr(_of(module), setter)(**changed),
        module,
    )


def _numpy_random() -> Any:
    return sys.modules["numpy"].random.get_state(legacy=False)


def _set_numpy_random(state: Any) -> None:
    sys.modules["numpy"].random.set_state(state)


_NUMPY_REPR = "override_repr"
# What `np.set_printoptions` takes away again where it is not given it anew.
_NUMPY_FUNCTIONS = ("formatter", _NUMPY_REPR)


def _numpy_settings() -> Any:
    numpy = sys.modules["numpy"]
    shown = {name: value for name, value in numpy.get_printoptions().items() if name not in _NUMPY_FUNCTIONS}
    return numpy.geterr(), shown


def _set_numpy_settings(state: Any) -> None:
    numpy = sys.modules["numpy"]
    numpy.seterr(**state[0])
    numpy.set_printoptions(**state[1], **_numpy_functions())


def _numpy_functions() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    options: dict[str, Any] = getattr(numpy, "get_printoptions", dict)()  # else it is only being imported
    return {name: options[name] for name in _NUMPY_FUNCTIONS if name in options}


def numpy_formatters() -> Place:
    """The functions that `np.set_printoptions` was given."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        now = _numpy_functions()
        given = {**(now.get("formatter") or {}), _NUMPY_REPR: now.get(_NUMPY_REPR)}
        yield from ((kind, (kind, function)) for kind, function in given.items() if function is not None)

    def put(kind: str, function: Any) -> None:
        numpy = importlib.import_module("numpy")
        now = _numpy_functions()
        known = now["formatter"] or {}
        given = {kind: function} if kind == _NUMPY_REPR else {"formatter": {**known, kind: function}}
        numpy.set_printoptions(**{**now, **given})

    return Place("formatter of NumPy", entries, put)


def numpy_errors() -> Place:
    """What `np.seterrcall` was given, which the modes `call` and `log` of `np.seterr` lead to."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        numpy = sys.modules.get("numpy")
        if (called := getattr(numpy, "geterrcall", lambda: None)()) is not None:  # else it is only being imported
            yield name_of(called), (called,)

    return Place(
        "function of np.seterrcall", entries, lambda called: importlib.import_module("numpy").seterrcall(called)
    )


def _cupy_random() -> None:
    if seams.CUPY_RANDOM.of(_of("cupy").random):  # somebody drew numbers
        raise NotKeptError("cuRAND does not tell its state: its numbers begin anew")


def _torch_random() -> Any:
    torch = sys.modules["torch"]
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state().numpy(), [state.numpy() for state in on_devices]


def _set_torch_random(state: Any) -> None:
    torch = sys.modules["torch"]
    torch.set_rng_state(torch.from_numpy(state[0]))
    for number, on_device in enumerate(state[1][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(torch.from_numpy(on_device), number)


_DENORMAL = 1e-310
# Attributes below `torch.backends`; those that a version lacks are left alone.
_BACKEND_FLAGS = (
    "cuda.matmul.allow_tf32",
    "cudnn.allow_tf32",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "cudnn.enabled",
    "mkldnn.enabled",
)


def _numba_threads() -> int | None:
    """Asked for where it has started them: to ask starts them."""
    numba = _of("numba")
    threads: int | None = numba.get_num_threads() if seams.NUMBA_STARTED.here(False) else None  # noqa: FBT003
    return threads if threads != numba.config.NUMBA_NUM_THREADS else None


def _progress_bars(module: str) -> Aspect:
    """Of a library of Hugging Face's: shown, unless a cell has asked for none."""

    def are_hidden() -> bool | None:
        is_shown = getattr(_of(module), "is_progress_bar_enabled", None)
        return True if is_shown is not None and not is_shown() else None

    def hide(_: object) -> None:
        found = _of(module)
        (getattr(found, "disable_progress_bars", None) or found.disable_progress_bar)()

    return Aspect(f"progress bars of {module.partition('.')[0]}", are_hidden, hide, module)


def _applied(name: str) -> str | None:
    """The name of that module where it has made asyncio's loops nest, as a cell has to ask for once."""
    return name if getattr(_of("asyncio").run, "__module__", None) == name else None


def _torch_settings() -> dict[str, Any]:
    torch = sys.modules["torch"]
    device = torch.get_default_device()
    return {
        "dtype": torch.get_default_dtype(),
        # The device that everybody has is none that somebody chose: setting it would cost at each call.
        "device": None if device.type == "cpu" else str(device),
        "grad": torch.is_grad_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "anomaly": torch.is_anomaly_enabled(),
        "warns": torch.is_warn_always_enabled(),
        "hub": torch.hub.get_dir(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        # Nobody can be asked whether numbers too small for full precision are taken for zero.
        "flushes": not (torch.tensor(_DENORMAL, dtype=torch.float64, device="cpu") * 1.0).item(),
        "flags": {flag: _backend_flag(flag) for flag in _BACKEND_FLAGS},
    }


def _set_torch_settings(state: Mapping[str, Any]) -> None:
    torch = sys.modules["torch"]
    torch.set_default_dtype(state["dtype"])
    if state["device"] is not None:
        torch.set_default_device(state["device"])
    torch.set_grad_enabled(state["grad"])
    torch.set_float32_matmul_precision(state["precision"])
    if state["deterministic"] != torch.get_deterministic_debug_mode():
        torch.set_deterministic_debug_mode(state["deterministic"])  # imports the compiler, for seconds
    torch.autograd.set_detect_anomaly(state["anomaly"])
    torch.set_warn_always(state["warns"])
    torch.hub.set_dir(state["hub"])
    torch.multiprocessing.set_sharing_strategy(state["sharing"])
    torch.set_flush_denormal(state["flushes"])
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


def _mpmath() -> dict[str, Any]:
    context = _of("mpmath").mp
    return {"prec": context.prec, "pretty": context.pretty, "trap_complex": context.trap_complex}


def _set_mpmath(kept: Mapping[str, Any]) -> None:
    for name, value in kept.items():
        setattr(_of("mpmath").mp, name, value)


def _pandas_options() -> dict[str, Any] | None:
    """Those that differ from what they are in a new process, but for functions."""
    return {key: value for key, value in _all_pandas_options().items() if not callable(value)} or None


def pandas_functions() -> Place:
    """Functions among pandas' options (`display.float_format`)."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        if seams.PANDAS_OPTIONS.here(None) and seams.PANDAS_VALUES.here(None):  # else it is only being imported
            yield from ((key, (key, value)) for key, value in _all_pandas_options().items() if callable(value))

    return Place(
        "option of pandas", entries, lambda key, value: importlib.import_module("pandas").set_option(key, value)
    )


def _all_pandas_options() -> dict[str, Any]:
    changed, values, deprecated = {}, seams.PANDAS_VALUES.here(), seams.PANDAS_DEPRECATED.here()
    for key, option in seams.PANDAS_OPTIONS.here().items():
        *groups, name = key.split(".")
        # `get_option` takes ten times as long, for each of some eighty.
        now = functools.reduce(operator.getitem, groups, values)[name]
        if now is not option.defval and now != option.defval and key not in deprecated:
            changed[key] = now
    return changed


def _set_pandas_options(changed: Mapping[str, Any]) -> None:
    for key, value in changed.items():
        _of("pandas").set_option(key, value)


def _torch_printing() -> dict[str, Any]:
    return dict(vars(seams.TORCH_PRINTING.here()))


def _set_torch_printing(options: Mapping[str, Any]) -> None:
    _of("torch").set_printoptions(**options)


def _tqdm_of_pandas() -> tuple[type, dict[str, Any]] | None:
    """The bar and its options, which the methods that `tqdm.pandas()` put on pandas' classes hold."""
    apply = getattr(_of("pandas").DataFrame, "progress_apply", None)
    if apply is None:
        return None
    held = inspect.getclosurevars(apply).nonlocals
    return held["cls"], held["tqdm_kwargs"]


def _set_tqdm_of_pandas(state: tuple[Any, dict[str, Any]]) -> None:
    bar, options = state
    bar.pandas(**options)


def _plotly() -> dict[str, str | None]:
    """Defaults; one with a template of the user's in it is told with that one."""
    defaults = {name: getattr(_of("plotly.io"), name).default for name in ("renderers", "templates")}
    if not _plotlys_own().issuperset((defaults["templates"] or "none").split("+")):
        del defaults["templates"]
    return defaults


def _set_plotly(defaults: Mapping[str, str | None]) -> None:
    for name, default in defaults.items():
        getattr(_of("plotly.io"), name).default = default


@functools.cache
def _plotlys_own() -> frozenset[str]:
    return frozenset(type(_of("plotly.io").templates)())


def plotly_templates() -> Place:
    """What cells have made of `plotly.io.templates`, each with the default that it is in."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        templates: Any = getattr(sys.modules.get("plotly.io"), "templates", ())  # else it is only being imported
        for name in templates:
            if name not in _plotlys_own():
                default = templates.default
                yield name, (name, default if name in (default or "").split("+") else None, templates[name])

    def put(name: str, default: str | None, template: Any) -> None:
        templates = importlib.import_module("plotly.io").templates
        templates[name] = template
        if default is not None and all(part in templates for part in default.split("+")):
            templates.default = default

    return Place("template of plotly", entries, put)


def _altairs_registries() -> dict[str, Any]:
    altair: Any = sys.modules.get("altair")
    if not hasattr(altair, "renderers"):
        return {}  # it is only being imported
    # `altair.themes` warns since 5.5, which has `altair.theme`.
    enable_theme = getattr(getattr(altair, "theme", None), "enable", None) or altair.themes.enable
    return {
        "data transformer": altair.data_transformers,
        "renderer": altair.renderers,
        "theme": enable_theme.__self__,
    }


def _is_altairs(plugin: Any) -> bool:
    return str(getattr(plugin, "__module__", "")).partition(".")[0] == "altair"


def _altair() -> dict[str, tuple[str, dict[str, Any]]]:
    """What is enabled; what is the user's is told with itself."""
    return {
        what: (registry.active, dict(registry.options))
        for what, registry in _altairs_registries().items()
        if _is_altairs(seams.ALTAIR_PLUGINS.of(registry).get(registry.active))
    }


def _set_altair(state: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    for what, (active, options) in state.items():
        _altairs_registries()[what].enable(active, **options)


def altair_plugins() -> Place:
    """Themes, renderers and data transformers of the user's, each with its options where it is enabled."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for what, registry in _altairs_registries().items():
            for name, plugin in seams.ALTAIR_PLUGINS.of(registry, {}).items():
                if not _is_altairs(plugin):
                    options = registry.options if name == registry.active else None
                    yield (what, name), (what, name, options, plugin)

    def put(what: str, name: str, options: Mapping[str, Any] | None, plugin: Any) -> None:
        importlib.import_module("altair")
        registry = _altairs_registries()[what]
        registry.register(name, plugin)
        if options is not None:
            registry.enable(name, **options)

    return Place("altair", entries, put, lambda key, _: " ".join(key))


def _set_dask(kept: Mapping[str, Any]) -> None:
    """Also what `dask.config.set` has set."""
    config = _of("dask.config").config
    config.clear()
    config.update(kept)


def _bokeh() -> str | None:
    state = _of("bokeh.io.state").curstate()
    return state.notebook_type if state.notebook else None


def _set_bokeh(notebook_type: Any) -> None:
    """Its scripts are in the page already."""
    _of("bokeh.io.state").curstate().output_notebook(notebook_type)


def _jax() -> dict[str, Any]:
    return dict(_of("jax").config.values)


def _set_jax(kept: Mapping[str, Any]) -> None:
    config = _of("jax").config
    for name, value in kept.items():
        if name in config.values and config.values[name] != value:
            config.update(name, value)


def _sympy() -> dict[str, Any] | None:
    """What `init_printing` gives all printers; the printers of types themselves are kept as objects."""
    return dict(seams.SYMPY_SETTINGS.here()) or None


def _set_sympy(settings: Mapping[str, Any]) -> None:
    _of("sympy.printing.printer").Printer.set_global_settings(**settings)


def sympy_printers() -> Place:
    """What `init_printing` gives SymPy's own objects as methods: closures, which lead to how to print."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        if (printable := seams.SYMPY_PRINTABLE.here(None)) is not None:
            for name in ("_repr_latex_", "_repr_png_", "_repr_svg_"):
                method = vars(printable)[name]
                is_shown = name == "_repr_latex_" or method.__name__ != seams.SYMPY_NOT_SHOWN.name
                if method.__name__ != name and is_shown:
                    yield name, (name, method)

    def put(name: str, method: Any) -> None:
        importlib.import_module("sympy")
        setattr(seams.SYMPY_PRINTABLE.here(), name, method)

    return Place("printing of SymPy", entries, put)
