"""Lets this environment's Python find the packages of another one too, behind its own: `share_packages.py VENV`."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def main() -> None:
    """Write a .pth file that names the other environment's packages."""
    own = Path(sysconfig.get_path("purelib"))
    other = Path(sys.argv[1]).resolve() / own.relative_to(sys.prefix)
    if not other.is_dir():
        sys.exit(f"{other} is not there: give the environment that has the packages.")
    # Unlike a plain path, addsitedir reads the .pth files in there too, such as those of editable installs.
    (own / "zz_shared.pth").write_text(f"import site; site.addsitedir({str(other)!r})\n", encoding="utf-8")


if __name__ == "__main__":
    main()
