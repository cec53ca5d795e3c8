"""Ordinary research cells pass the check without a refusal."""

from __future__ import annotations

import pytest

from ipysandbox.check import check

CELLS = {
    "numpy": "import numpy as np\nrng = np.random.default_rng(0)\nx = rng.normal(size=(10, 3))\nprint(np.linalg.svd(x)[1])",
    "pandas": (
        "import pandas as pd\ndf = pd.read_csv('data/raw/x.csv')\ndf = df.eval('c = a + b').query('c > @limit')\n"
        "print(pd.eval('df.c * 2'))\ndf.groupby('a')['c'].agg(['mean', 'std']).reset_index()"
    ),
    "matplotlib": (
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\n"
        "fig.savefig('results/a.png', dpi=150)"
    ),
    "sklearn": (
        "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\n"
        "from sklearn.svm import SVC\nmodel = make_pipeline(StandardScaler(), SVC()).fit(X, y)\nmodel.score(X, y)"
    ),
    "subprocess list": (
        "import subprocess, sys\nr = subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, check=True)\n"
        "subprocess.check_output(['ls', '-l'], shell=False)\np = subprocess.Popen(['cat'], stdin=subprocess.PIPE)"
    ),
    "subprocess shell on windows only": "import subprocess, os\nsubprocess.run(['x'], shell=os.name == 'nt')",
    "multiprocessing": (
        "from multiprocessing import Pool\ndef f(x):\n    return x * x\nwith Pool(2) as pool:\n    print(pool.map(f, range(4)))"
    ),
    "asyncio": (
        "import asyncio\nasync def job(n):\n    await asyncio.sleep(0)\n    return n\n"
        "print(await asyncio.gather(*(job(i) for i in range(3))))\nasync with lock:\n    pass"
    ),
    "asyncio subprocess": "import asyncio, sys\np = await asyncio.create_subprocess_exec(sys.executable, '-V')",
    "dataclasses": "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass P:\n    x: int = 0\n    y: list = field(default_factory=list)",
    "match": "match point:\n    case {'x': x, **rest}:\n        print(x, rest)\n    case [first, *others]:\n        print(first)\n    case P(x=0) as p:\n        print(p)",
    "decorators": "import functools\n@functools.lru_cache(maxsize=None)\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "f-strings": "name = 'a'\nprint(f'{name!r:>10} {1 + 1} {name.upper()=}')\nprint(f\"{'nested'}\")",
    "type comments": "from typing import List\nx = []  # type: List[int]\ndef f(a, b):\n    # type: (int, str) -> None\n    pass",
    "type ignore": "import foo  # type: ignore[import]",
    "pip list": "!pip list",
    "assigned shell": "files = !ls data/raw\nfor f in files:\n    !echo {f}",
    "timeit": "%timeit sum(range(100))",
    "timeit with options": "%timeit -n 10 -r 3 sum(range(100))",
    "timeit cell": "%%timeit -n 1 x = 1\nx + 1",
    "time cell with shell": "%%time\n!ls\nx = 1",
    "capture": "%%capture out\nprint(1)",
    "await": "import asyncio\nawait asyncio.sleep(0)",
    "help before": "?print",
    "help after": "print??",
    "help on a magic": "%timeit?",
    "cell magic help": "%%timeit?",
    "prompts": ">>> x = 1\n>>> x + 1",
    "ipython prompts": "In [1]: x = 1\n   ...: x + 1",
    "indented": "    x = 1\n    y = 2",
    "automagic": "pip install numpy",
    "automagic listing": "ls data/raw",
    "automagic change": "cd ..",
    "continued shell": "!echo a \\\n  b\nx = 1",
    "re.compile": "import re\ncompile = re.compile\np = compile(r'(\\d+)' + suffix)\ndel compile\nre.compile(p0)",
    "from re import compile": "from re import compile\ncompile(pattern)",
    "compile inside a function": "import re\ncompile = re.compile\ndef f(p):\n    return compile(p)",
    "eval as a method": "class Net:\n    def eval(self):\n        return self\nnet = Net()\nnet.eval()\nmodel.eval()\nself.net.eval(x)",
    "eval as a function": "def eval(model, loader):\n    return 1\neval(model, loader)",
    "eval as a parameter": "def run(eval, x):\n    return eval(x)",
    "eval as a loop variable": "for eval in evaluators:\n    eval(x)",
    "eval in a comprehension": "[eval(x) for eval in evaluators]",
    "exec as a class": "class exec:\n    pass\nexec(plan)",
    "compile as keyword target": "compile: object = make()\ncompile(model)",
    "compile by with": "with open_it() as compile:\n    compile(x)",
    "torch.compile": "import torch\nmodel = torch.compile(model, mode='max-autotune')\nmodel.compile(optimizer='adam')",
    "compile as a class member": "class torch:\n    @staticmethod\n    def compile(m):\n        return m\ntorch.compile(net)",
    "eval of a literal": "eval('1 + 2')\nexec('x = 3')\nexec(compile('y = 4', '<s>', 'exec'))",
    "eval of a name for a literal": "src = '1 + 2'\nprint(eval(src))",
    "importlib": "import importlib, importlib.metadata, importlib.util\nm = importlib.import_module('math')\nimportlib.reload(m)\nimportlib.metadata.version('numpy')\nimportlib.util.find_spec('cupy')",
    "__import__ literal": "np = __import__('numpy')",
    "introspection": "print(type(x).__name__, x.__class__.__name__, X.__mro__[1].__name__, x.__dict__, X.__slots__, f.__doc__, f.__code__.co_varnames)",
    "registry of subclasses": "class Base:\n    pass\nclass A(Base):\n    pass\nfor c in Base.__subclasses__():\n    print(c)\ndef walk(cls):\n    for s in cls.__subclasses__():\n        walk(s)",
    "getattr": "f = getattr(np, name)\ng = getattr(os, 'getcwd')()\nh = getattr(x, 'shape', None)\nnorm = getattr(np.linalg, 'norm')(v)",
    "globals": "print('df' in globals(), globals()['df'], vars(x), locals().keys(), list(vars(os))[:3])",
    "os": "import os\nos.makedirs('results', exist_ok=True)\nprint(os.path.join('a', 'b'), os.environ.get('HOME'), os.getpid(), os.listdir('.'))\nos.fork",
    "shutil": "import shutil\nshutil.copy('a', 'results/b')\nshutil.rmtree('results/cache', ignore_errors=True)\nshutil.which('gcc')",
    "rmtree of a temporary folder": "import tempfile, shutil\nd = tempfile.mkdtemp()\ntry:\n    pass\nfinally:\n    shutil.rmtree(d)",
    "rmtree of a path object": "from pathlib import Path\nimport shutil\nOUT = Path('results')\nshutil.rmtree(OUT / 'cache')\nshutil.rmtree(str(OUT / name))\nshutil.rmtree(f'results/{run}')",
    "pathlib": "from pathlib import Path\nfor p in sorted(Path('data').glob('*.csv')):\n    print(p.read_text()[:10])\nPath('results/x').unlink(missing_ok=True)",
    "sqlite": "import sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('create table t(a)')\ndb.system = 1",
    "operators": "import operator\nkey = operator.itemgetter(1)\nsorted(x, key=operator.attrgetter('name'))\noperator.methodcaller('upper')('a')",
    "partial": "from functools import partial\nf = partial(max, key=len)\nf(['a'])",
    "walrus": "if (n := len(x)) > 3:\n    print(n)",
    "scope": "x = 0\ndef f():\n    global x\n    x += 1\n    def g():\n        nonlocal_y = 1\n    return g",
    "sympy": "from sympy import *\nx = symbols('x')\nexpr = sin(x)\nexpr.evalf()",
    "line magics": "%load_ext autoreload\n%autoreload 2\n%config InlineBackend.figure_format = 'retina'\n%env A=1\n%cd data",
    "magic assigned": "out = %time sum(range(3))",
    "html cell": "%%html\n<b>x</b>",
    "writefile cell": "%%writefile results/a.py\nimport os; os.system('x')",
    "unicode": "größe = 3\nprint('naïve café ☕', größe)",
    "empty": "",
    "blank": "\n  \n",
    "comment": "# just a comment",
    "windows line ends": "x = 1\r\ny = 2\r\n",
    "signal processing": "from scipy import signal\nb, a = signal.butter(3, 0.1)\ny = signal.filtfilt(b, a, x)",
    "own shell method": "class Runner:\n    def run(self, cmd, shell=None):\n        return cmd\nRunner().run('x', shell='bash')",
    "threads": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as ex:\n    list(ex.map(len, x))",
    "generator": "total = sum(v for k, v in d.items() if k)\n{k: [w for w in v] for k, v in d.items()}",
    "exception group": "try:\n    f()\nexcept (ValueError, OSError) as e:\n    raise RuntimeError('x') from e\nelse:\n    pass\nfinally:\n    g()",
    "string about danger": "print('never call os.system or eval(input())')  # os.system('x')",
    "hasattr": "hasattr(os, 'system'), callable(eval), isinstance(exec, object)",
    "percent in expression": "x = (a\n  % b)\nprint('%s' % x)",
    "doctest string": '"""\n>>> x = 1\n"""\ny = 2',
}


@pytest.mark.parametrize("name", CELLS)
def test_research_code_is_not_refused(name: str) -> None:
    report = check(CELLS[name])
    assert report.verdict == "ok", str(report)
    assert not report.findings or name in (), str(report)
