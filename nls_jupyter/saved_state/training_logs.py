"""Where training is logged: the runs of MLflow and of Weights & Biases that are open, and TensorBoard's writers.

What cells log after a move goes on in the same run, and in the same folder. Nobody but this process is asked while it
is saved; in the next one, a server that does not answer is named.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def aspects() -> tuple[Aspect, ...]:
    """The open runs."""
    return (
        Aspect("MLflow's run", _mlflow, _go_on_with_mlflow, "mlflow"),
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


def _wandb() -> dict[str, Any] | None:
    run = getattr(sys.modules["wandb"], "run", None)
    if run is None or run.disabled:
        return None
    settings = run.settings
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
        wandb.init(**options, resume=None if options["mode"] == "offline" else "allow")


def _reduce_run(run: Any) -> Any:
    """The one that goes on; another one is pickled as W&B does it."""
    is_open = run is getattr(sys.modules.get("wandb"), "run", None)
    return (open_run, (run.id,)) if is_open else NotImplemented


def open_run(number: str) -> Any:
    """The run of Weights & Biases; called by the unpickler. Raises RuntimeError where it does not go on."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None or run.id != number:
        raise RuntimeError(f"the run {number} could not go on")
    return run


def _reduce_writer(kind: Any, writer: Any) -> Any:
    """It goes on with another file in its folder; what it was given is in the ones before by then."""
    if type(writer) is not kind or writer.file_writer is None:
        return NotImplemented  # a class of the user's, or closed
    writer.flush()
    return kind, (writer.log_dir, "", None, writer.max_queue, writer.flush_secs, writer.filename_suffix)
