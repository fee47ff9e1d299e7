"""Whatever type an object is of, it comes back as it was, or it is named: for all types that there are.

Objects of every type in the standard library and in the libraries that notebooks use are made, saved, changed, saved
again, and restored in another process, with names for what is derived from them. `tests/saved_state_named_types.json`
keeps what is named, so that a change shows as a difference; `tests/saved_state_types_run.py` says how to write it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from saved_state_types_run import merged

_HERE = Path(__file__).parents[1]
KEPT = json.loads((_HERE / "saved_state_named_types.json").read_text())
# What differs and is no loss, and why.
ACCEPTED = {
    "collections.deque": "an iterator over a deque that has changed since raises, and goes on after a restore",
    "numpy.ma.core.MaskedConstant": "its views are arrays of their own, as it is one for everybody",
    "numpy.ma.MaskedArray": "looked at, it fills in its fill value; `vars` of it is a dict of its own",
    "pickle.PickleBuffer": "pickle itself makes a memory view of it",
    "tqdm.gui.tqdm_gui": "a figure of matplotlib's is to be drawn anew once it was pickled, in any way",
    **dict.fromkeys(
        ("matplotlib.colors.AsinhNorm", "matplotlib.colors.FuncNorm", "matplotlib.colors.SymLogNorm"),
        "their callbacks put the number of the next one behind their other fields when they come back, in any way",
    ),
    "numpy.record": "`vars` of it is a dict of its own",
    "torch.storage.TypedStorage": "what pickle takes of it has the address of its memory in it",
    "torch.distributions.gumbel.Gumbel": "its transforms drop their inverses when they are pickled, in any way",
    "torch.storage.UntypedStorage": "`vars` of it is a dict of its own",
}
_WITHIN_S = 7200


def tried(folder, part, parts):
    """What became of every `parts`-th type, from `part` on."""
    place = folder / str(part)
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(_HERE / "saved_state_types_run.py"), str(part), str(parts)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def unexpected(outcome):
    """Wrong in silence."""
    return {name: lines for name, lines in outcome["wrong"].items() if name not in ACCEPTED}


def by_type(outcome):
    return {name: reason for reason, names in outcome["named"].items() for name in names}


@pytest.mark.long("objects of many types that can be imported")
@pytest.mark.timeout(600)
def test_some_types_come_back_or_are_named(tmp_path):
    outcome = merged([tried(tmp_path, 77, 200)])
    assert unexpected(outcome) == {}
    assert outcome["kept"] >= 10
    if outcome["versions"] == KEPT["versions"]:
        known = by_type(KEPT)
        assert {name: known.get(name) for name in by_type(outcome)} == by_type(outcome)


@pytest.mark.long("objects of every type that can be imported")
@pytest.mark.skipif("NLS_ALL_TYPES" not in os.environ, reason="make types tries all types: seven minutes on two cores")
@pytest.mark.timeout(_WITHIN_S)
def test_every_type_comes_back_or_is_named(tmp_path):
    parts = os.cpu_count() or 1
    with ThreadPoolExecutor(parts) as pool:
        outcome = merged(list(pool.map(lambda part: tried(tmp_path, part, parts), range(parts))))
    counts = {each: outcome[each] for each in ("types", "kept", "unmade")}
    print({**counts, "named": len(by_type(outcome)), "own": len(outcome["own"]), "unstable": len(outcome["unstable"])})
    assert unexpected(outcome) == {}
    assert outcome["types"] > 5000
    assert outcome["kept"] > 2000
    if outcome["versions"] == KEPT["versions"]:
        assert by_type(outcome).keys() - by_type(KEPT).keys() == set()  # what came back still does
