"""Shows what research prints and draws twice in one JupyterLab: from a plain kernel, and beside it from a sandbox.

    python tests/browser/side_by_side.py FOLDER

FOLDER gets the two notebooks, executed, and ``outputs.png``, for somebody to look at. A cell whose library isn't
installed is left out and named: pip install altair bokeh folium geopandas matplotlib pandas plotly rich scikit-learn
seaborn sympy tqdm vl-convert-python xarray. Without a network Altair draws nothing in a
plain kernel, and Folium nowhere.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from pages import TOKEN, jupyterlab
from playwright.sync_api import sync_playwright

#: One after another: a title, the modules that the cell needs, and the cell.
OUTPUTS = r"""
# %% pandas table (pandas)
import pandas as pd
pd.DataFrame({'site': ['Ålesund', 'Bergen'], 'mean': [1.25, None]})

# %% pandas Styler (pandas jinja2)
import pandas as pd
table = pd.DataFrame({'a': [1, 2, 3], 'b': [3.5, 1, 2]}).style.background_gradient(axis=None).format(precision=1)
table.set_caption('styled').bar(subset=['b'], color='#fc8')

# %% matplotlib (matplotlib numpy)
import numpy as np, matplotlib.pyplot as plt
x = np.linspace(0, 6)
plt.figure(figsize=(5, 2))
plt.plot(x, np.sin(x), label='sin'); plt.legend(); plt.show()

# %% matplotlib, SVG (matplotlib)
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats
set_matplotlib_formats('svg')
plt.figure(figsize=(5, 2)); plt.hist([1, 2, 2, 3, 3, 3]); plt.title('hist')
plt.show()
set_matplotlib_formats('png')

# %% seaborn (seaborn)
import seaborn as sns, numpy as np
sns.set_theme(rc={'figure.figsize': (5, 2)})
sns.kdeplot(x=np.random.default_rng(1).normal(size=200), fill=True);

# %% plotly (plotly)
import plotly.express as px
px.scatter(x=[1, 2, 3], y=[3, 1, 2], height=260, title='plotly').show()

# %% bokeh (bokeh)
from bokeh.io import output_notebook
from bokeh.plotting import figure, show
from bokeh.resources import INLINE
output_notebook(INLINE, hide_banner=True)
f = figure(height=200, width=450, title='bokeh'); f.line([1, 2, 3], [3, 1, 2])
show(f)

# %% altair (altair pandas vl_convert)
import altair as alt, pandas as pd
alt.Chart(pd.DataFrame({'x': [1, 2, 3], 'y': [2, 3, 1]}), height=120).mark_bar().encode(x='x:O', y='y:Q')

# %% sympy (sympy)
import sympy as sp
x = sp.symbols('x')
sp.init_printing()
sp.Integral(sp.exp(-x**2), (x, 0, sp.oo))

# %% scikit-learn (sklearn)
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
make_pipeline(StandardScaler(), Ridge())

# %% xarray (xarray)
import numpy as np, xarray as xr
xr.DataArray(np.eye(3), dims=('lat', 'lon'), name='t2m')

# %% geopandas (geopandas)
import geopandas as gpd
from shapely.geometry import Point
gpd.GeoDataFrame({'name': ['A', 'B']}, geometry=[Point(5, 60), Point(10, 59)], crs=4326)

# %% shapely (shapely)
from shapely.geometry import Point
Point(0, 0).buffer(1)

# %% tqdm (tqdm)
from tqdm import tqdm
import sys
for _ in tqdm(range(300), ncols=60, file=sys.stdout): pass

# %% rich (rich)
from rich.console import Console
from rich.table import Table
t = Table(title='rich'); t.add_column('a', style='cyan')
t.add_row('1', style='bold red')
Console().print(t)

# %% IPython: Markdown, Latex (IPython)
from IPython.display import Latex, Markdown, display
display(Markdown('**bold**, `code`, $e^{i\\pi}$\n\n| a | b |\n|---|---|\n| 1 | 2 |'), Latex(r'$\sum_i x_i^2$'))

# %% IPython: HTML, SVG (IPython)
from IPython.display import HTML, SVG, display
display(HTML('<b style="color: teal">bold</b> <i>italic</i>'))
circle = '<circle cx="20" cy="20" r="18" fill="tomato"/>'
SVG(f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40">{circle}</svg>')

# %% IPython: JSON, Pretty (IPython)
from IPython.display import JSON
JSON({'a': [1, 2, {'b': None}]})

# %% IPython: Image (PIL)
from PIL import Image
Image.linear_gradient('L').resize((200, 40))

# %% IPython: update, clear (IPython)
from IPython.display import clear_output, display
print('gone'); clear_output()
h = display('first', display_id=True)
h.update('second')

# %% colours, a warning (warnings)
import warnings
print('\x1b[32mgreen\x1b[0m \x1b[1;35mbold\x1b[0m')
warnings.warn('look out')

# %% a traceback (math)
import math
def area(r):
    return math.pi * r ** 2 / (r - 1)
area(1)

# %% folium (folium)
import folium
folium.Map(location=[60, 5], zoom_start=5, height=200)
"""


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = ("plain", "sandboxed")
    for name in names:
        nbformat.write(_notebook(sandboxed=name == "sandboxed"), folder / f"{name}.ipynb")
    (folder / "pyproject.toml").touch()
    with (
        tempfile.TemporaryDirectory() as state,
        jupyterlab(folder, Path(state)) as address,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1900, "height": 9000})
        page.goto(f"{address}/lab?token={TOKEN}&reset")
        page.wait_for_function("() => window.jupyterapp?.restored")
        page.evaluate("window.jupyterapp.restored")
        for name, mode in zip(names, ("tab-after", "split-right"), strict=True):
            _run(page, f"{name}.ipynb", mode)
        for side in ("Left", "Right"):
            page.evaluate(f"window.jupyterapp.shell.collapse{side}()")
        page.wait_for_timeout(8000)  # figures draw themselves
        page.screenshot(path=folder / "outputs.png")
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save-all')")
        page.wait_for_timeout(2000)
        browser.close()
    print(folder / "outputs.png")
    return 0


def _notebook(*, sandboxed: bool) -> nbformat.NotebookNode:
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell("%load_ext ipysandbox" if sandboxed else "# a plain kernel")]
    for title, modules, code in re.findall(r"^# %% (.+) \((.+)\)\n((?:(?!# %%).*\n)+)", OUTPUTS, re.M):
        code = code.strip()
        missing = [module for module in modules.split() if importlib.util.find_spec(module) is None]
        if missing:
            print(f"left out: {title} (not installed: {', '.join(missing)})", file=sys.stderr)
            continue
        cell = nbformat.v4.new_code_cell(f"%%sandbox\n{code}" if sandboxed else f"# {title}\n{code}")
        cell.metadata = {"tags": ["raises-exception"], "jupyter": {"source_hidden": False}}
        book.cells.append(cell)
    return book


def _run(page: Any, name: str, mode: str) -> None:
    page.evaluate(
        "([path, mode]) => window.jupyterapp.commands.execute('docmanager:open', {path, options: {mode}})", [name, mode]
    )
    page.wait_for_function(
        """(name) => { const widget = window.jupyterapp.shell.currentWidget;
             const kernel = widget?.context?.path === name && widget.sessionContext?.session?.kernel;
             return kernel && kernel.connectionStatus === "connected" && kernel.status === "idle"; }""",
        arg=name,
        timeout=120_000,
    )
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.content.widgets.every(
             (cell) => cell.model.type !== "code" || cell.model.executionCount)""",
        timeout=300_000,
    )


if __name__ == "__main__":
    sys.exit(main())
