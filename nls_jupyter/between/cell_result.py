"""A result that the other process has rendered already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class CellResult:
    """The value of a cell's last expression, as the GPU process rendered it; displayed, it is the kernel's Out[n]."""

    def __init__(self, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        self._data = dict(data)
        self._metadata = dict(metadata)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """For IPython's display formatter."""
        del include, exclude  # the GPU process formatted already, with the user's own configuration
        return dict(self._data), dict(self._metadata)

    def __repr__(self) -> str:
        return str(self._data.get("text/plain", "<a result without a text form>"))
