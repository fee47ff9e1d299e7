#!/usr/bin/env bash
# Where there is a network and no GPU:   bash tools/gpu_hour/prepare.sh [FOLDER]
# Puts what a GPU machine lacks into one folder (default: .gpuhour in this checkout, which git ignores): wheels, this
# project's own of the last commit, its tests, benchmarks and tools. Wheels that are there stay (REFRESH=1 asks the index
# again); everything else is made anew. PYTHON_VERSION: of the GPU machine's Python (default: 3.12).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.gpuhour}
version=${PYTHON_VERSION:-3.12}
python=${PYTHON:-python3}
most_mib=60
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ "$folder" = "$root" ] && folder=$root/.gpuhour && mkdir -p "$folder"
[ "${REFRESH:-0}" = 1 ] && rm -rf "$folder/wheels"
rm -rf "$folder/src" "$folder"/wheels/nls_jupyter-*.whl
mkdir -p "$folder/src" "$folder/wheels"

git -C "$root" archive HEAD | tar -x -C "$work"
(cd "$work" && tar -c tests tools benchmarks pyproject.toml) | tar -x -C "$folder/src"
git -C "$root" log -1 --format='%h %cI' > "$folder/src/COMMIT"
cp "$root/tools/gpu_hour/hour.sh" "$folder/"
"$python" -m pip --disable-pip-version-check wheel -q --no-deps -w "$folder/wheels" "$work"

# The base, a Jupyter Server for the story, and what the tests need; CUDA, NumPy and PyTorch are the image's. So is what
# the driver's own suspend is asked for with, where it has that, of either version of CUDA.
cat > "$folder/wheels/requirements.txt" <<'REQUIREMENTS'
nls-jupyter
jupyter_server>=2.16,<3
pytest>=8.3,<10
pytest-timeout>=2.3,<3
hypothesis
jsonschema>=4.23,<5
tqdm>=4.66,<5
REQUIREMENTS
printf '%s\n' 'cuda-core>=1.0,<2' 'cuda-bindings>=12.8,<14' 'cuda-pathfinder' > "$folder/wheels/cuda.txt"
asked=$(cat "$folder/wheels/requirements.txt" "$folder/wheels/cuda.txt" "$root/pyproject.toml" | sha256sum)
if [ "$asked" != "$(cat "$folder/wheels/asked" 2>/dev/null)" ]; then
    platforms=()
    for glibc in 28 27 24 17 12 5; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
    for old in 2014 2010 1; do platforms+=(--platform "manylinux${old}_x86_64"); done
    download() {
        "$python" -m pip --disable-pip-version-check download -q --only-binary=:all: --python-version "$version" \
            --implementation cp --abi "cp${version/./}" --abi abi3 --abi none "${platforms[@]}" \
            -d "$folder/wheels" --find-links "$folder/wheels" "$@"
    }
    download -r "$folder/wheels/requirements.txt"
    download --no-deps -r "$folder/wheels/cuda.txt"
    echo "$asked" > "$folder/wheels/asked"
fi

size_mib=$(($(du -sk "$folder" | cut -f1) / 1024))
[ "$size_mib" -lt "$most_mib" ] || { echo "prepare: $size_mib MiB, more than $most_mib"; exit 1; }
# Without a network, into nothing: whatever is missing is told here.
"$python" -m pip --disable-pip-version-check install -q --dry-run --no-index --only-binary=:all: --python-version "$version" \
    --implementation cp --abi "cp${version/./}" --abi abi3 --abi none --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_12_x86_64 \
    --platform manylinux2010_x86_64 --platform manylinux_2_5_x86_64 --platform manylinux1_x86_64 \
    --target "$work/nowhere" --find-links "$folder/wheels" -r "$folder/wheels/requirements.txt"
echo "prepare: $size_mib MiB in $folder. There, with the folder carried along:   bash .gpuhour/hour.sh 1"
