"""Entry point of the GPU process: `python -m nls_jupyter.gpu_process -f CONNECTION_FILE`, below a guardian.

Apart from `kernel` for the reason of ipykernel's launcher: nothing may be imported before `sys.path` is clean.
"""

import os
import sys
from importlib.util import find_spec

if __name__ == "__main__":
    # The extension, loaded in here by the user's configuration too, must know where it is before anything loads it.
    os.environ["NLS_GPU_PROCESS"] = "1"
    # A user's random.py next to the notebook must not be taken for the standard library's.
    # InteractiveShellApp.init_path adds the working directory again, behind the standard library.
    try:
        here = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        # Deleted under the notebook: IPython wants one that is there. A restore tells that it is not the same.
        os.chdir("/")
        here = ""
    if sys.path[0] in ("", here):
        del sys.path[0]

    # Code that cells run tells by it whether it is in a notebook, where arguments are not its own.
    if launcher := find_spec("ipykernel_launcher"):
        sys.argv[0] = str(launcher.origin)

    if os.environ.pop("NLS_OWN_HASH_SEED", None):
        del os.environ["PYTHONHASHSEED"]  # read by now, and not for what cells start

    if os.environ.pop("NLS_STANDBY", None):
        from nls_jupyter.gpu_process import priority

        priority.lower()

    from nls_jupyter.gpu_process.kernel import main

    if "NLS_AHEAD" in os.environ:
        from nls_jupyter.gpu_process import ahead

        ahead.wait_for_order()

    main(sys.argv[1:])
