"""What a cell raises when there is no GPU for it: one clear sentence with what to do, no traceback of our own."""

from __future__ import annotations


class GpuError(Exception):
    """Base of everything that `%gpu` and `%%gpu` raise. The notebook shows only the sentence."""

    def _render_traceback_(self) -> list[str]:
        """For IPython: our own frames would tell the user nothing."""
        return [f"\x1b[0;31m{type(self).__name__}\x1b[0m: {self}"]


def show_as_sentence(error: KeyboardInterrupt) -> None:
    """Have IPython show an interrupt of our own waiting without our frames, which would tell the user nothing.

    One that came from the GPU process brings the traceback of the user's code, which stays.
    """
    if not hasattr(error, "_render_traceback_"):
        sentence = "\x1b[0;31mKeyboardInterrupt\x1b[0m: the cell was interrupted"
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
