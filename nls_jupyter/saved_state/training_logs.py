"""Where training is logged: the runs of MLflow and of Weights & Biases that are open, and TensorBoard's writers.

What cells log after a move goes on in the same run, and in the same folder. Nobody but this process is asked while it
is saved; in the next one, a server that does not answer is named.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ASKS_A_SERVER: Final = frozenset({"online", "shared"})


def aspects() -> tuple[Aspect, ...]:
    """The open runs."""
    return (
        Aspect("MLflow's run", _mlflow, _go_on_with_mlflow, "mlflow"),
        Aspect("mlflow.autolog()", _autologs, _autolog, "mlflow"),
        # Names lead to it, which is what `wandb.init` has made.
        Aspect("the run of Weights & Biases", _wandb, _go_on_with_wandb, "wandb", early=True),
    )


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The classes of what has a name, and their reducers, of libraries that are imported."""
    if (writer := getattr(sys.modules.get("torch.utils.tensorboard.writer"), "SummaryWriter", None)) is not None:
        yield writer, functools.partial(_reduce_writer, writer)
    if (run := getattr(sys.modules.get("wandb.sdk.wandb_run"), "Run", None)) is not None:
        yield run, _reduce_run


def _mlflow() -> dict[str, str] | None:
    """Of the run, its server and its experiment, what a cell has chosen."""
    mlflow = sys.modules["mlflow"]
    if not hasattr(mlflow, "active_run"):
        return None  # it is only being imported, or traces calls and nothing else
    run, experiment = mlflow.active_run(), seams.MLFLOW_EXPERIMENT.here(None)
    chosen = {
        "server": mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None,
        "experiment": experiment,
        "run": None if run is None else run.info.run_id,
    }
    return {name: value for name, value in chosen.items() if value is not None} or None


def _go_on_with_mlflow(chosen: Mapping[str, str]) -> None:
    mlflow = sys.modules["mlflow"]
    if "server" in chosen:
        mlflow.set_tracking_uri(chosen["server"])
    if "experiment" in chosen:
        mlflow.set_experiment(experiment_id=chosen["experiment"])
    if "run" in chosen and mlflow.active_run() is None:
        mlflow.start_run(run_id=chosen["run"])


def _autologs() -> dict[str, dict[str, Any]] | None:
    """What functions called `autolog` were given, MLflow's own first; those of libraries by their modules' names."""
    integrations = getattr(sys.modules.get("mlflow.utils.autologging_utils"), "AUTOLOGGING_INTEGRATIONS", {})
    return {name: dict(given) for name, given in integrations.items() if given} or None


def _autolog(integrations: Mapping[str, Mapping[str, Any]]) -> None:
    for name, given in integrations.items():
        function = importlib.import_module("mlflow" if name == "mlflow" else f"mlflow.{name}").autolog
        known = inspect.signature(function).parameters
        function(**{option: value for option, value in given.items() if option in known})


def _wandb() -> dict[str, Any] | None:
    run = _open_run()
    if run is None:
        return None
    settings = run.settings
    if run.disabled:
        return {"id": run.id, "mode": settings.mode}
    return {
        "id": run.id,
        "project": run.project,
        "entity": run.entity or None,
        "name": run.name,
        "dir": settings.root_dir,
        "mode": settings.mode,
        "config": dict(run.config),
    }


def _go_on_with_wandb(options: Mapping[str, Any]) -> None:
    wandb = sys.modules["wandb"]
    if wandb.run is None:
        wandb.init(**options, resume="allow" if options["mode"] in _ASKS_A_SERVER else None)


def _reduce_run(run: Any) -> Any:
    """The one that goes on. Raises UnsavableError for others: what W&B makes of their pickles is of no use."""
    if run is not _open_run():
        raise UnsavableError("a run of Weights & Biases that is over", run)
    return open_run, (run.id,)


def open_run(number: str) -> Any:
    """The run of Weights & Biases; called by the unpickler. Raises RuntimeError where it does not go on."""
    run = _open_run()
    if run is None or run.id != number:
        raise RuntimeError(f"the run {number} could not go on")
    return run


def _open_run() -> Any:
    return getattr(sys.modules.get("wandb"), "run", None)


def _reduce_writer(kind: Any, writer: Any) -> Any:
    """It goes on with another file in its folder; what it was given is in the ones before (`open_files.flush`)."""
    if type(writer) is not kind or writer.file_writer is None:
        return NotImplemented  # a class of the user's, or closed
    return kind, (writer.log_dir, "", None, writer.max_queue, writer.flush_secs, writer.filename_suffix)
