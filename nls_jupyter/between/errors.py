"""What a cell raises when its GPU is not there or goes: one clear sentence with what to do, no traceback of our own."""

from __future__ import annotations


class GpuError(Exception):
    """Base of everything that `%gpu` and `%%gpu` raise. The notebook shows only the sentence."""

    def _render_traceback_(self) -> list[str]:
        """For IPython: our own frames would tell the user nothing."""
        return [f"\x1b[0;31m{type(self).__name__}\x1b[0m: {self}"]


def show_as_sentence(error: KeyboardInterrupt) -> None:
    """Have IPython show an interrupt of our own waiting without our frames, which would tell the user nothing.

    It says what the interrupt says, if that is anything. One that came from the GPU process brings the traceback of the
    user's code, which stays.
    """
    if not hasattr(error, "_render_traceback_"):
        sentence = f"\x1b[0;31m{type(error).__name__}\x1b[0m: {str(error) or 'the cell was interrupted'}"
        error._render_traceback_ = lambda: [sentence]  # type: ignore[attr-defined]  # IPython looks for it


class GpuUsageError(GpuError):
    """The line after `%gpu` or `%%gpu` cannot be understood; nothing was changed."""


class GpuUnavailable(GpuError):  # noqa: N818 - names what happened, as the user reads it
    """There is no GPU for this cell; the cell did not run."""


class GpuProcessDied(GpuError):  # noqa: N818
    """The GPU process ended while the cell ran; the kernel and its variables live.

    Attributes:
        what: what happened, in short.
    """

    what = "the GPU process ended"


class GpuEvicted(GpuError):  # noqa: N818
    """The GPU was taken back for its owner while the cell ran, after the time that the owner waits.

    Attributes:
        what: what happened, in short.
    """

    what = "the GPU was taken back"


class GpuTransferFailed(GpuError):  # noqa: N818
    """A variable that `%%gpu -i` or `-o` names cannot be copied; none of them was."""


class GpuReclaimed(KeyboardInterrupt):
    """The GPU was taken back in the middle of this cell, which has `grace_s` seconds to end by itself.

    A cell may catch it to put things in order, for instance to call `save_point()`, and should then end.

    Attributes:
        reason: why, as the user reads it.
        grace_s: seconds until the GPU process is ended if the cell still runs.
    """

    def __init__(self, reason: str, grace_s: float) -> None:
        super().__init__(reason, grace_s)
        self.reason = reason
        self.grace_s = grace_s

    def __str__(self) -> str:
        return (
            f"the GPU was taken back: {self.reason}. The cell was interrupted, and its variables are being saved as "
            "they are now. Run the cell again: it waits for a GPU, and says if any of them could not be saved."
        )
