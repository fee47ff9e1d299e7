"""Says which tools the tests can use on this machine. With CI=true a missing one is an error, else its tests skip."""

import os
import shutil
import sys

TOOLS = {
    "chromium": "tests of JupyterLab in a browser (Debian: apt-get install chromium)",
    "gcc": "tests of the NVML driver on a stub library (Debian: apt-get install gcc libc6-dev)",
}

# The tests take whichever of them there is.
OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}

missing = [
    f"{tool} is missing: no {what}"
    for tool, what in TOOLS.items()
    if not any(map(shutil.which, (tool, *OTHER_NAMES.get(tool, ()))))
]
for line in missing:
    print(line)  # noqa: T201 - the message is the point
sys.exit(1 if missing and os.environ.get("CI") == "true" else 0)
