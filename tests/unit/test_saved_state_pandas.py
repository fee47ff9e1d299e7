"""Saved state of pandas' tables: who shares memory until a write goes on doing so, and a write changes nobody else."""

from __future__ import annotations

import numpy as np
import pytest

from nls_jupyter.saved_state import user_names
from saved_state_roundtrip import Roundtrip, cells

pd = pytest.importorskip("pandas")

ALWAYS = pd.__version__.split(".") >= ["3"]
FRAME = "import pandas as pd\ndf = pd.DataFrame({'a': [1.0, 2, 3], 'b': [4.0, 5, 6]})\n"
SERIES = "import pandas as pd\nser = pd.Series([10, 20, 30])\n"
SHARING = {
    "column": (FRAME + "of = df['a']", "df.iloc[0, 0] = 100"),
    "column, the other way": (FRAME + "of = df['a']", "of.iloc[0] = 100"),
    "columns": (FRAME + "of = [df['a'], df['b'], df[['a']]]", "of[0].iloc[0] = 100; df.iloc[1, 1] = 7"),
    "renamed": (FRAME + "of = df.rename(columns={'a': 'A'})", "of.iloc[0, 0] = 100"),
    "rows": (FRAME + "of = df.iloc[:2]", "df.iloc[0, 0] = 100"),
    "rows, the other way": (FRAME + "of = df.iloc[1:]", "of.iloc[0, 0] = 100"),
    "assigned": (FRAME + "of = df.assign(z=1)", "df.iloc[0, 0] = 100"),
    "index reset": (FRAME + "of = df.reset_index()", "of.iloc[0, 1] = 100"),
    "shallow copy": (FRAME + "of = df.copy(deep=False)", "df.iloc[0, 0] = 100"),
    "column as index": (FRAME + "of = df.set_index('a', drop=False)", "of.iloc[0, 0] = 100"),
    "column as the only index": (FRAME + "of = df.set_index('a')", "df.iloc[0, 0] = 100"),
    "index of a series": (SERIES + "of = pd.Index(ser); of.get_loc(20)", "ser.iloc[0] = 99"),
    "series of an index": (SERIES + "of = pd.Index([1, 2]); ser = pd.Series(of)", "ser.iloc[0] = 99"),
    "view of an index": (SERIES + "of = pd.Index(ser); more = of.rename('x')", "ser.iloc[0] = 99"),
    "series of a range": (SERIES + "of = pd.RangeIndex(3); ser = pd.Series(of)", "ser.iloc[0] = 99"),
    "times": (
        "import pandas as pd\nser = pd.Series(pd.date_range('2020', periods=3)); of = pd.DatetimeIndex(ser)",
        "ser.iloc[0] = ser.iloc[1]",
    ),
    "categories": (
        "import pandas as pd\nser = pd.Series(['x', 'y'], dtype='category'); of = ser.copy(deep=False)",
        "ser.iloc[0] = 'y'",
    ),
    "nullable integers": (
        "import pandas as pd\nser = pd.Series([1, None], dtype='Int64'); of = ser.rename('of')",
        "ser.iloc[0] = 2",
    ),
    "objects": (
        "import pandas as pd\nser = pd.Series([[1], None], dtype=object); of = ser.copy(deep=False)",
        "of.iloc[0] = 'written'",
    ),
    "strings": (
        "import pandas as pd\nser = pd.Series(['x', 'y']); of = ser.copy(deep=False)",
        "ser.iloc[0] = 'y'",
    ),
    "frame within a list": (FRAME + "of = [df, {'column': df['b']}]", "of[0].iloc[0, 1] = 100"),
    "NumPy's view": (FRAME + "of = df.to_numpy(); mine = df['a'].to_numpy()", "df.iloc[0, 0] = 100"),
    "array that a frame shows": (
        "import numpy as np, pandas as pd\nof = np.zeros((3, 2)); df = pd.DataFrame(of, copy=False)",
        "of[0, 0] = 5; df.iloc[1, 1] = 6",
    ),
    "nobody any more": (FRAME + "of = df['a']; del of", "df.iloc[0, 0] = 100"),
    "nobody who has a name": (FRAME + "import sys; sys.modules[__name__ + '?'] = df['a']", "df.iloc[0, 0] = 100"),
}


def arrays_of(value):
    """NumPy's arrays over what a value shows, without a copy; what is made of a range is made when it is asked for."""
    if isinstance(value, pd.RangeIndex):
        return []
    if isinstance(value, pd.DataFrame):
        return [part for column in range(value.shape[1]) for part in arrays_of(value.iloc[:, column])]
    if isinstance(value, (pd.Series, pd.Index)):
        return arrays_of(value._values)
    if isinstance(value, (list, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return [array for part in parts for array in arrays_of(part)]
    names = [name for name in ("_codes", "_data", "_ndarray") if hasattr(value, name)]
    return [getattr(value, names[0]) if names else np.asarray(value)]


def portrait(names):
    """What the user sees, and who shares memory with whom."""
    values = {name: value for name, value in names.items() if name not in {"pd", "np", "sys"}}
    arrays = [array for name in sorted(values) for array in arrays_of(values[name])]
    shared = [[np.shares_memory(one, other) for other in arrays] for one in arrays]
    return {name: repr(value) for name, value in values.items()}, [array.flags.writeable for array in arrays], shared


@pytest.fixture(params=[True] if ALWAYS else [True, False], ids=lambda on: "copy on write" if on else "write through")
def copies_on_write(request):
    if ALWAYS:
        yield True
        return
    with pd.option_context("mode.copy_on_write", request.param, "mode.chained_assignment", None):
        yield request.param


@pytest.mark.usefixtures("copies_on_write")
@pytest.mark.parametrize("what", SHARING)
def test_a_write_after_a_restore_changes_what_it_would_have_changed(what):
    source, write = SHARING[what]
    namespace = cells(source)
    result = Roundtrip(user_names(namespace, {}), function_globals=namespace)
    assert not result.manifest.missing
    assert not result.report.missing
    assert portrait(result.namespace) == portrait(user_names(namespace, {}))
    exec(write, namespace)
    exec(write, result.namespace)
    result.namespace.pop("__builtins__")
    assert portrait(result.namespace) == portrait(user_names(namespace, {}))


@pytest.mark.usefixtures("copies_on_write")
def test_a_frame_that_shares_with_nobody_is_written_to_where_it_is():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    column = frame["a"]
    result = Roundtrip({"frame": frame})
    again = result["frame"]
    memory = arrays_of(again)[0]
    again.iloc[0, 0] = 7.0
    assert memory[0] == 7.0
    assert column.iloc[0] == 1.0


def test_tables_that_share_go_on_doing_so_in_the_process_after_the_next(copies_on_write):
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    again = Roundtrip(Roundtrip({"frame": frame, "renamed": frame.rename(columns=str.upper)}).namespace)
    assert np.shares_memory(arrays_of(again["frame"])[0], arrays_of(again["renamed"])[0]) == copies_on_write
    again["frame"].iloc[0, 0] = 7.0
    assert again["renamed"].iloc[0, 0] == 1.0
