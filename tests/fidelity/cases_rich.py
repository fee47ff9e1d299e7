"""Rich output: displays, updates, images, tables and progress bars."""

from __future__ import annotations

from cases import NUMBERS, case

CLASS = """
class Rich:
    def __repr__(self): return 'Rich()'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_latex_(self): return '$x^2$', {'meta': 1}
    def _repr_markdown_(self): return '*rich*'
"""
BUNDLE = """
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'bundle', 'application/vnd.mine+json': {'a': [1, None, 2.5]}}, {'text/plain': {'m': 1}}
"""
PNG = (
    "import base64\nfrom IPython.display import Image\n"
    "png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ'\n"
    "    'AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\n"
)
FRAME = "import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b': ['x', None]})\n"
FIGURE = "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots(figsize=(2, 1))\naxes.plot([1, 2, 3])\n"
# Seconds and rates are in the text of the bar; the counts before them stay.
BAR = ((r"\[\d\d:\d\d<[^\]]*\] *", "[TIME]"), (r"\s*(\d+%)\|[^|]*\|", r" \1|"), (r"\r +\r", "\r"))
SETUP = (
    "import matplotlib.pyplot as plt\nimport numpy as np\nimport pandas as pd\nfrom IPython.display import clear_output"
)

CASES = (
    case("a value with many forms", CLASS + "Rich()"),
    case("a display of it", CLASS + "display(Rich(), Rich())\nprint('after')"),
    case("a mime bundle with metadata", BUNDLE + "Bundle()"),
    case("a bundle with metadata in a display", BUNDLE + "display(Bundle(), metadata={'text/plain': {'x': 2}})"),
    case("a raw display", "display({'text/plain': 'raw', 'text/html': '<i>raw</i>'}, raw=True)"),
    case(
        "a form that is left out",
        CLASS + "display(Rich(), exclude=['text/html'])\ndisplay(Rich(), include=['text/latex'])",
    ),
    case(
        "a form that fails",
        "class Bad:\n    def _repr_html_(self): raise ValueError('no html')\n"
        "    def __repr__(self): return 'Bad()'\nBad()",
    ),
    case("a value without any form", "class Worse:\n    def __repr__(self): raise ValueError('no text')\nWorse()"),
    case(
        "HTML, Markdown, Latex, SVG",
        "from IPython.display import HTML, Latex, Markdown, SVG\n"
        "display(HTML('<p>'), Markdown('**m**'), Latex('$l$'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))",
    ),
    case(
        "JSON and JavaScript",
        "from IPython.display import JSON, Javascript\ndisplay(JSON({'a': [1, 2]}, expanded=True), Javascript('1'))",
    ),
    case("an image", PNG + "Image(png)"),
    case("an image with a size", PNG + "display(Image(png, width=10, height=20))"),
    case("an image by its address", "from IPython.display import Image\nImage(url='https://example.org/a.png')"),
    case(
        "a frame and a link",
        "from IPython.display import IFrame, FileLink\ndisplay(IFrame('https://example.org', 10, 5))",
    ),
    case("a code listing", "from IPython.display import Code\nCode('x = 1', language='python')"),
    case("pretty printing and a display object's own repr", "from IPython.display import Pretty\nPretty('as it is')"),
    case("a display with an identifier", "handle = display('first', display_id='mine')\nprint('between')"),
    case(
        "an update from another cell",
        "from IPython.display import update_display\nupdate_display('second', display_id='mine')",
    ),
    case("an update by its handle", "handle = display('a', display_id=True)\nhandle.update('b')\nhandle.update('c')"),
    case("a display that is updated in the next cell", "handle = display('a', display_id=True)", "handle.update('z')"),
    case("clear_output", "from IPython.display import clear_output\nprint('a')\nclear_output()\nprint('b')"),
    case("clear_output that waits", "print('a')\nclear_output(wait=True)\nprint('b')\ndisplay('c')"),
    case("a display before and after text", "print('a')\ndisplay('d')\nprint('b')"),
    case("a display and a result", "display('d')\n'r'"),
    case("a result and text after it", "class Late:\n    def _repr_html_(self):\n        return '<b>late</b>'\nLate()"),
    case(
        "a formatter of the user's",
        "formatter = get_ipython().display_formatter.formatters['text/plain']\n"
        "formatter.for_type(int, lambda value, p, cycle: p.text(f'int {value}'))\n5",
        "formatter.pop(int)\n5",
    ),
    case("a figure", "%matplotlib inline\n" + FIGURE),
    case("a figure after a result", "figure, axes = plt.subplots(figsize=(1, 1))\naxes.plot([3, 1])\n'the result'"),
    case(
        "a figure that is shown in the middle",
        "plt.figure(figsize=(1, 1))\nplt.plot([1, 2])\nplt.show()\nprint('after')",
    ),
    case("two figures", "for i in range(2):\n    plt.figure(figsize=(1, 1))\n    plt.plot([i, i + 1])"),
    case("a figure as the result", "figure, axes = plt.subplots(figsize=(1, 1))\nplt.close(figure)\nfigure"),
    case(
        "figures as SVG",
        "%config InlineBackend.figure_formats = ['svg']\nplt.figure(figsize=(1, 1))\nplt.plot([1, 2]);",
        "%config InlineBackend.figure_formats = ['png']",
        hide=((r"id=\\?\"[^\"]*\"|#[mpc][0-9a-f]{10}|<dc:date>[^<]*|C[0-9. -]+", "*"),),
    ),
    case("a data frame", FRAME + "frame"),
    case("a data frame that is described and styled", FRAME + "display(frame.describe())\nframe.dtypes"),
    case("a long data frame", "pd.DataFrame({'n': range(1000)})"),
    case(
        "an option of pandas",
        "pd.set_option('display.max_rows', 4)\npd.DataFrame({'n': range(1000)})",
        "pd.reset_option('display.max_rows')",
    ),
    case("an array", "import numpy as np\nnp.arange(12.0).reshape(3, 4) / 7"),
    case("a precision", "%precision 2\n3.14159", "%precision %r\n3.14159"),
    case(
        "the options of an array",
        "np.set_printoptions(precision=2)\nnp.array([1/3])",
        "np.set_printoptions(precision=8)",
    ),
    case("a progress bar of text", "from tqdm import tqdm\nfor i in tqdm(range(3), mininterval=0): pass", hide=BAR),
    case(
        "a progress bar that is written through",
        "from tqdm import tqdm\nfor i in tqdm(range(2), desc='work', mininterval=0):\n    tqdm.write(f'line {i}')",
        hide=BAR,
        streams_race=True,
    ),
    case("a timer's figures", "import time\ntime.perf_counter() - time.perf_counter() < 1, time.time()", hide=NUMBERS),
)
