"""What holds where nobody has configured it. Read by every kernel, also by those that never use a GPU."""

from __future__ import annotations

# From the first cell that is not saved on; the default of `%config GpuMagics.save_within`.
WITHIN_S = 2.0
