"""What runs in the GPU process; started as `python -m nls_jupyter.gpu_process -f CONNECTION_FILE`."""
