#!/usr/bin/env bash
# The GPU hour, on a machine with a GPU, without a network:   bash .gpuhour/hour.sh PART|STEP|all [--simulate] ...
# PART 1: what must work; 2: speeds; 3: limits, and the largest memory; 4: the driver's own checkpoint.
# Results: $OUT/results.json, $OUT/STEP.txt. Python: $PYTHON, or python3; what it lacks comes from the wheels beside this.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# As prepare.sh lays it out, or in a checkout.
if [ -d "$here/src" ]; then source=$here/src; kit=$here; else source=$(cd "$here/../.." && pwd); kit=$source/.gpuhour; fi
unset PYTHONDONTWRITEBYTECODE
export OUT=${OUT:-$kit/out} PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
python=${PYTHON:-python3}
if ! { mkdir -p "$OUT" && head -c 1M /dev/zero > "$OUT/room"; } 2> /dev/null; then
    for other in "${TMPDIR:-/tmp}" /dev/shm; do
        made=$(mktemp -d "$other/nls-gpu-hour.XXXXXX") && head -c 1M /dev/zero > "$made/room" && break
    done 2> /dev/null
    echo "hour: nothing can be written in $OUT (rights? a full disk?): results are in $made"
    OUT=$made
fi
rm -f "$OUT/room"
if ! (cd / && "$python" -c "import nls_jupyter, jupyter_server, pytest, pytest_timeout, hypothesis, jsonschema" 2>/dev/null); then
    # Into the environment that is there: one above it would hide from each standby what the image has. pip takes from
    # the folder only what is missing or too old.
    "$python" -m pip install -q --no-index --no-compile --no-cache-dir --root-user-action=ignore \
        --find-links "$kit/wheels" -r "$kit/wheels/requirements.txt" > "$OUT/pip.txt" 2>&1
    tail -5 "$OUT/pip.txt"
fi
if ! (cd / && "$python" -c "import cuda.core, cuda.bindings" 2>/dev/null) && [ -e "$kit/wheels/cuda.txt" ]; then
    # By itself, as it takes NumPy: without, nothing is lost but the driver's own suspend.
    "$python" -m pip install -q --no-index --no-compile --no-cache-dir --root-user-action=ignore \
        --find-links "$kit/wheels" -r "$kit/wheels/cuda.txt" >> "$OUT/pip.txt" 2>&1 || tail -1 "$OUT/pip.txt"
fi
exec "$python" "$source/tools/gpu_hour/hour.py" "$@"
