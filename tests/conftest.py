"""What all tests share: a project with things worth stealing, and real sandboxes on it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from ipysandbox import Sandbox

# A slow machine is no failure. On CI every run tries the same examples, so that a red run speaks of the change; what is
# searched for at random is found elsewhere.
hypothesis.settings.register_profile("anywhere", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "anywhere")

# A shell starts what runs in its background with Ctrl-C ignored (POSIX, 2.11), and Python leaves it so: tests that
# press it would do so in vain, here and in the kernels they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Audit trail, approvals and settings of the person who runs the tests are left alone."""
    base = tmp_path_factory.mktemp("home")
    names = {"XDG_STATE_HOME": "state", "XDG_DATA_HOME": "data", "JUPYTER_CONFIG_DIR": "jupyter"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(base / folder) for name, folder in names.items()})
    # Processes are counted, and a machine's time is short: sandboxes wait only where that is what is tested.
    (base / "jupyter").mkdir()
    (base / "jupyter/ipysandbox.toml").write_text("[start]\npool = 0\n")
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small study: data, a module, secrets that must stay hidden, a git folder."""
    root = tmp_path / "study"
    for name, text in {
        "data/x.csv": "a,b\n1,2\n",
        "src/model.py": "FACTOR = 3\n",
        ".env": "TOKEN=secret-of-the-project\n",
        "keys/server.pem": "secret-of-the-project\n",
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/config": '[remote "origin"]\n\turl = https://me:secret-of-the-project@git.example/a.git\n',
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder of one's own whose path is short enough for sockets (unix(7): 107 bytes), as pytest's may not be."""
    with tempfile.TemporaryDirectory(prefix="ipys-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def make_box(project: Path) -> Iterator[Callable[..., Sandbox]]:
    """Starts sandboxes on the project, without the check: what holds must hold by itself."""
    boxes: list[Sandbox] = []

    def make(**options: object) -> Sandbox:
        box = Sandbox(**{"project": project, "validate": False, **options})  # type: ignore[arg-type]
        box.start()
        boxes.append(box)
        return box

    yield make
    for box in boxes:
        box.close()


@pytest.fixture
def box(make_box: Callable[..., Sandbox]) -> Sandbox:
    return make_box()
