"""Functions among a library's settings come back, with what they share, beside the settings that are none."""

from __future__ import annotations

from saved_state_processes import carried, carried_on


def test_numpys_formatters_come_back_beside_its_other_settings():
    before = (
        "import numpy as np\nunits = ['m']\n"
        "def metres(x): return f'{x}{units[0]}'\n"
        "np.set_printoptions(precision=2, formatter={'float_kind': metres, 'int': lambda n: f'<{n}>', 'bool': str})\n"
        "np.seterr(divide='raise');\n"
    )
    after = (
        "import numpy as np\nassert np.get_printoptions()['precision'] == 2 and np.geterr()['divide'] == 'raise'\n"
        "assert np.get_printoptions()['formatter']['float_kind'] is metres\n"
        "units[0] = 'km'\nassert str(np.array([1.0])) == '[1.0km]' and str(np.array([3])) == '[<3>]'\n"
        "assert np.get_printoptions()['formatter']['bool'] is str\n"
    )
    assert carried_on(before, after) == []


def test_what_a_formatter_cannot_be_saved_for_is_all_that_is_lost():
    before = (
        "import numpy as np\nsteps = (n for n in range(3))\n"
        "np.set_printoptions(precision=2, formatter={'float_kind': lambda x, steps=steps: 'x', 'int': lambda n: 'i'})\n"
    )
    named = carried(
        before,
        "assert np.get_printoptions()['precision'] == 2 and str(np.array([1])) == '[i]'\n"
        "assert str(np.array([1.5])) == '[1.5]'",
    )
    assert [name for name, _ in named] == ["steps", "formatter of NumPy: float_kind"]


def test_functions_among_pandas_options_come_back_beside_the_others():
    before = (
        "import pandas as pd\nunits = ['m']\npd.set_option('display.max_rows', 7)\n"
        "pd.set_option('display.float_format', lambda x: f'{x}{units[0]}')\n"
    )
    after = (
        "units[0] = 'km'\nassert pd.get_option('display.max_rows') == 7\n"
        "assert '1.5km' in str(pd.DataFrame({'a': [1.5]}))\n"
    )
    assert carried_on(before, after) == []
