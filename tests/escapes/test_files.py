"""Files: what is not the policy's does not exist inside, and nothing outside results/ changes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import PolicyError, Sandbox, StartError, state
from ipysandbox.audit import default_path, iter_records
from ipysandbox.backends.linux import left_behind, processes
from ipysandbox.supervisor.spawn import Supervisor

from .conftest import TRY


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything about every file below ``root``, results/ aside."""
    found = {}
    for path in sorted(root.rglob("*")):
        relative = str(path.relative_to(root))
        if relative.split("/")[0] == "results":
            continue
        info = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[relative] = (info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, info.st_nlink, data)
    return found


def test_neither_the_home_nor_a_neighbour_exists_inside(outside: Path, tell: Callable[[str], Any]) -> None:
    home = Path.home()
    told = tell(f"""
import os
paths = [{str(outside)!r}, {str(outside / "secret.txt")!r}, {str(home / ".bashrc")!r}, {str(home / ".ssh")!r}]
[path for path in (*paths, "/etc/shadow") if os.path.lexists(path)]
""")
    assert told == []


def test_hidden_names_do_not_exist_inside_and_the_rest_does(tell: Callable[[str], Any]) -> None:
    told = tell("""
import os
names = [".env", "keys/server.pem", ".git/config", "data/x.csv", "src/model.py", ".git/HEAD"]
[[name, os.path.exists(name), name in os.listdir(".")] for name in names]
""")
    assert [row[1] for row in told] == [False, False, False, True, True, True]


def test_a_secret_that_appears_later_is_hidden_from_the_next_cell(project: Path, box: Sandbox) -> None:
    box.run("import os")
    (project / "later.env").write_text("secret-of-the-project")
    (project / "src" / ".aws").mkdir()
    (project / "src" / ".aws" / "credentials").write_text("secret-of-the-project")
    (project / "results" / "id_rsa").write_text("secret-of-the-project")
    result = box.run("""
for name in ("later.env", "src/.aws/credentials", "results/id_rsa"):
    try: print(repr(open(name).read()))
    except OSError as exc: print(exc.strerror)
""")
    assert result.stdout.split("\n")[:3] == ["''", "No such file or directory", "''"], result.stdout
    assert (project / "later.env").read_text() == "secret-of-the-project"
    # An editor saves by putting a new file in the old one's place.
    (project / "new").write_text("changed-secret")
    (project / "new").rename(project / "results" / "id_rsa")
    assert box.run("open('results/id_rsa').read()").value == ""


def test_a_hidden_name_that_appears_later_is_told_once(project: Path, box: Sandbox) -> None:
    assert box.run("import os").notices == ()
    (project / "data" / "new.env").write_text("secret-of-the-project")
    told = box.run("open('data/new.env').read()")
    assert (told.value, told.notices) == (
        "",
        ("data/new.env has appeared and its name is hidden by files.hide: inside it reads as empty.",),
    )
    (project / "data" / "newer").write_text("changed-secret")
    (project / "data" / "newer").rename(project / "data" / "new.env")
    assert box.run("1").notices == ()
    for number in range(5):
        (project / f"{number}.env").write_text("secret-of-the-project")
    [line] = box.run("1").notices
    assert " and 2 more have appeared and their names are hidden by files.hide: inside they read as empty." in line
    (project / "last.env").write_text("secret-of-the-project")
    box.restart()
    again = box.run("open('last.env')")
    assert again.error is not None
    assert again.error.ename == "FileNotFoundError"
    assert again.notices == ("The sandbox can't see last.env: its name is hidden by files.hide.",)


def test_copies_of_secrets_and_settings_of_bare_repositories_are_hidden(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    names = [".ipynb_checkpoints/.env-checkpoint", ".env~", "credentials (1).json", ".server.key.swp", "m.git/config"]
    for name in (*names, "m.git/HEAD", "m.git/objects/x", "notes.txt~"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("secret-of-the-project")
    code = f"import os\n[name for name in {[*names, 'm.git/HEAD', 'notes.txt~']!r} if os.path.exists(name)]"
    assert make_box().run(code).value == ["m.git/HEAD", "notes.txt~"]


def test_a_secret_that_is_replaced_in_results_stays_hidden(project: Path, make_box: Callable[..., Sandbox]) -> None:
    (project / "results").mkdir()
    (project / "results/id_rsa").write_text("secret-of-the-project")
    box = make_box()
    assert box.run("open('results/id_rsa').read()").value == ""
    (project / "new").write_text("changed-secret")
    (project / "new").rename(project / "results/id_rsa")
    assert box.run("open('results/id_rsa').read()").value == ""


def test_nothing_that_code_writes_puts_off_the_look_for_new_secrets(project: Path, box: Sandbox) -> None:
    filled = box.run("""
import os
for k in range(30):
    os.makedirs(f"results/{k}")
    for i in range(1000): open(f"results/{k}/{i}", "w").close()
""")
    assert filled.status == "ok", filled.error
    box.run("1")  # its look is the first that is slow
    (project / "fresh.pem").write_text("secret-of-the-project")
    assert box.run("import os; os.path.exists('fresh.pem') and open('fresh.pem').read()").value in (False, "")


def test_what_is_written_outside_results_stays_inside(project: Path, box: Sandbox) -> None:
    before = snapshot(project)
    result = box.run("""
import os, shutil
open("src/model.py", "a").write("# changed")
os.chmod("data/x.csv", 0o600); os.utime("data/x.csv", (1, 1))
os.makedirs("new/folder"); open("new/folder/f", "w").write("x")
open(".git/HEAD", "w").write("x"); os.makedirs(".git/hooks"); open(".git/hooks/pre-commit", "w").write("#!/bin/sh")
open("ipysandbox.toml", "w").write("[limits]"); open(".env", "w").write("mine")
shutil.rmtree("keys")
open("results/kept.txt", "w").write("kept")
""")
    assert result.status == "ok", result.error
    assert snapshot(project) == before
    assert (project / "results" / "kept.txt").read_text() == "kept"
    kinds = {change.path: change.kind for change in box.diff()}
    assert kinds["src/model.py"] == "changed"
    assert kinds["new/folder/f"] == "added"
    assert kinds["keys"] == "removed"


def test_links_and_renames_out_of_results_reach_nothing(
    project: Path, outside: Path, tell: Callable[[str], Any]
) -> None:
    before = snapshot(project)
    told = tell(
        TRY
        + f"""
os.symlink({str(outside / "secret.txt")!r}, "results/link")
os.symlink("../src/model.py", "results/inside")
open("results/inside", "a").write("# changed inside only")
[errno_of(lambda: open("results/link").read()), errno_of(lambda: os.rename("src/model.py", "results/m")),
 errno_of(lambda: os.link("src/model.py", "results/l")), errno_of(lambda: os.rename("results", "other"))]
"""
    )
    assert told == ["ENOENT", "EXDEV", "EXDEV", "EBUSY"]
    assert snapshot(project) == before
    assert (outside / "secret.txt").read_text() == "secret-of-the-host\n"


def test_no_trap_can_be_left_in_results(project: Path, box: Sandbox) -> None:
    (project / "results").mkdir(exist_ok=True)
    box.restart()
    result = box.run(
        TRY
        + """
import socket
def listen():
    socket.socket(socket.AF_UNIX).bind("results/socket")
print([errno_of(lambda: os.mkfifo("results/pipe")), errno_of(listen),
       errno_of(lambda: os.mknod("results/device", 0o020666, os.makedev(1, 3))),
       errno_of(lambda: os.chmod("results", 0o6755)),
       errno_of(lambda: os.close(os.open("results/setuid", os.O_CREAT | os.O_WRONLY, 0o4755)))])
os.makedirs("results/.git/hooks"); open("results/.git/config", "w").write("[core] fsmonitor = evil")
open("results/sub.ipynb", "w").write("{}"); open("results/fine.csv", "w").write("a")
"""
    )
    assert result.stdout.strip() == "['EACCES', 'EACCES', 'EPERM', 'EPERM', 'EPERM']"
    assert sorted(path.name for path in (project / "results").iterdir()) == [
        "fine.csv", "git.untrusted", "sub.ipynb.untrusted",
    ]  # fmt: skip
    assert any(".git renamed" in notice for notice in result.notices)


def test_no_rename_leaves_a_device_behind(tell: Callable[[str], Any]) -> None:
    told = tell("""
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
found = []
for folder in ("results", os.environ["TMPDIR"]):
    old, new = (os.path.join(folder, name).encode() for name in ("moved-old", "moved-new"))
    open(old, "w").close()
    for flags in (4, 5):  # RENAME_WHITEOUT, RENAME_NOREPLACE
        found += [libc.renameat2(-100, old, -100, new, flags), errno.errorcode[ctypes.get_errno()]]
    found += [libc.renameat2(-100, old, -100, new, 1), os.path.lexists(old)]
found
""")
    assert told == [-1, "EINVAL", -1, "EINVAL", 0, False] * 2


def test_no_access_list_outlives_the_sandbox(project: Path, box: Sandbox) -> None:
    """A folder's default one would decide who may read what its user puts there later, whatever the umask."""
    told = box.run(
        TRY
        + """
import struct
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (1, 4, 0x20))
name = "system.posix_acl_default"
folder = os.open("results", os.O_RDONLY)
open("results/x", "w").close()
print([errno_of(lambda: os.setxattr("results", name, acl)), errno_of(lambda: os.setxattr(folder, name, acl)),
       errno_of(lambda: os.setxattr("results", name, acl, follow_symlinks=False)),
       errno_of(lambda: os.setxattr("results/x", "user.x", b"1")), errno_of(lambda: os.removexattr("results", name))])
"""
    )
    assert told.stdout.startswith("['ENOTSUP', 'ENOTSUP', 'ENOTSUP', 'ENOTSUP', "), (told.stdout, told.error)
    for path in (project / "results", project / "results/x"):
        assert not any(name.startswith(("system.", "user.")) for name in os.listxattr(path))


def test_files_with_attributes_are_copied_packed_and_changed(project: Path, box: Sandbox) -> None:
    data = project / "data/x.csv"
    os.utime(data, (1_000_000_000, 1_000_000_000))
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(data, "user.origin", b"field study")
    told = box.run("""
import os, shutil, subprocess, tarfile
shutil.copy2("data/x.csv", "results/a.csv")
subprocess.run(["cp", "-a", "data", "results/copied"], check=True)
with tarfile.open("results/all.tar", "w") as packed: packed.add("data")
with tarfile.open("results/all.tar") as packed: packed.extractall("results/unpacked")
for path in ("results/a.csv", "results/copied/x.csv", "results/unpacked/data/x.csv"):
    print(int(os.stat(path).st_mtime), open(path).read() == open("data/x.csv").read())
with open("data/x.csv", "a") as file: file.write("3,4\\n")
print(open("data/x.csv").read().split())
""")
    assert told.stdout == "1000000000 True\n" * 3 + "['a,b', '1,2', '3,4']\n", (told.error, told.stderr)
    assert data.read_text() == "a,b\n1,2\n"


def test_the_name_of_a_trap_does_nothing_to_who_is_told_of_it(box: Sandbox) -> None:
    told = box.run("import os\nos.symlink('/etc', 'results/\x1b[2Jx\\n\u202ey')").notices
    assert any("‹U+202E›y removed" in notice for notice in told)
    assert not any(character in "".join(told) for character in "\x1b\n\u202e")


@pytest.mark.parametrize(
    "code",
    [
        "os.rename('results/a.txt', 'results/.envrc'); os.rename('results/old', 'results/.git')",
        "os.makedirs('results/n/.git/x'); os.chmod('results/n/.git', 0o555); os.chmod('results/n', 0o555)",
        "os.makedirs('results/n/.git/x'); os.chmod('results/n', 0o444)",
        "os.makedirs('results/.git/a/.vscode/b/.git'); open('results/.git/a/.vscode/b/.git/.envrc', 'w')",
        "os.makedirs('results/k/.git'); os.chdir('results/k/.git')\nfor _ in range(300): os.mkdir('d'); os.chdir('d')",
        "os.mkdir('results/.git'); os.mkdir('results/git.untrusted'); open('results/x.pth', 'w')",
        "os.chmod('results', 0o000); os.chmod('results', 0o300); os.mkdir('results/.git')",
    ],
    ids=[
        "moved there",
        "not writable",
        "not searchable",
        "in one another",
        "very deep",
        "name taken",
        "unreadable results",
    ],
)
def test_traps_are_disarmed_however_they_are_laid(project: Path, make_box: Callable[..., Sandbox], code: str) -> None:
    (project / "results" / "old").mkdir(parents=True)
    (project / "results" / "a.txt").write_text("x")
    box = make_box()
    assert box.run("import os\n" + code).status == "ok"
    (project / "results").chmod(0o755)
    # What is too deep ends it as soon as that is counted.
    _until(lambda: box.status()["state"] == "dead" or _sleeps(box.status()["pid"]))
    # Nothing that is left counts as the user's; what is too deep counts as too many files.
    assert box.run("1").status in ("ok", "limit")
    box.close()
    (project / "results").chmod(0o755)
    found = [name for _, folders, files in os.walk(project / "results") for name in (*folders, *files)]
    assert not {".git", ".vscode", ".envrc", "x.pth"} & set(found)
    assert make_box().run("1").status == "ok"  # nothing was left that hinders the next start


def test_no_link_is_left_that_leads_out_through_one_that_was_there(
    project: Path, outside: Path, make_box: Callable[..., Sandbox]
) -> None:
    (project / "results").mkdir()
    (project / "results" / "ext").symlink_to(outside)
    box = make_box()
    code = "os.mkdir('results/n'); os.symlink('ext/secret.txt', 'results/a'); os.symlink('../ext', 'results/n/b')"
    result = box.run("import os\n" + code + "\nos.symlink('n', 'results/fine'); os.chmod('results', 0o777)")
    assert result.status == "ok"
    assert sorted(path.name for path in (project / "results").iterdir()) == ["ext", "fine", "n"]
    assert list((project / "results" / "n").iterdir()) == []
    assert stat.S_IMODE((project / "results").stat().st_mode) == 0o755


@pytest.mark.parametrize("where", ["results", "results/a/study.git"])
@pytest.mark.parametrize(
    "sign", ["os.makedirs('objects'); os.makedirs('refs')", "open('commondir', 'w').write('.git2')"]
)
def test_no_folder_in_results_becomes_a_git_repository(
    project: Path, make_box: Callable[..., Sandbox], where: str, sign: str
) -> None:
    """git takes a folder for one by what lies in it, and then runs what its settings name."""
    box = make_box()
    settings = '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch was-here; false"\n'
    result = box.run(f"""
import os
os.makedirs({where!r}, exist_ok=True); os.chdir({where!r})
for base in ".", ".git2":
    os.makedirs(base, exist_ok=True)
    open(base + "/HEAD", "w").write("ref: refs/heads/main\\n"); open(base + "/config", "w").write({settings!r})
os.makedirs(".git2/objects"); os.makedirs(".git2/refs")
{sign}
""")
    assert result.status == "ok"
    assert any("HEAD renamed" in notice for notice in result.notices)
    box.close()
    for folder in (where, f"{where}/.git2"):
        # What may be above the tests' own folder is not meant.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str((project / folder).parent)}
        asked = subprocess.run(
            ["git", "status"], cwd=project / folder, env=environment, capture_output=True, text=True, check=False
        )
        assert "not a git repository" in asked.stderr
    assert not list(project.rglob("was-here"))


def test_a_repository_that_lies_in_results_keeps_its_settings(project: Path, make_box: Callable[..., Sandbox]) -> None:
    (project / "results").mkdir()
    subprocess.run(["git", "init", "--quiet", "--bare", str(project / "results" / "study.git")], check=True)
    repository = project / "results" / "study.git"
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    box = make_box()
    told = box.run(
        TRY
        + """
os.chdir("results/study.git")
[errno_of(lambda: open("config", "a")), errno_of(lambda: open("hooks/pre-receive", "w")),
 errno_of(lambda: os.rename("HEAD", "OLD")), errno_of(lambda: open("commondir", "w").close())]
"""
    ).value
    assert told == ["EROFS", "EROFS", "EBUSY", "worked"]
    box.close()
    (repository / "commondir.untrusted").unlink()
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_what_lay_in_results_under_a_protected_name_stays_as_it_was(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    (project / "results").mkdir()
    (project / "results" / "old.ipynb").write_text("{}")
    (project / "results" / ".env").write_text("secret-of-the-project")
    box = make_box()
    result = box.run(TRY + 'print(errno_of(lambda: open("results/old.ipynb", "w")), repr(open("results/.env").read()))')
    assert result.stdout.split() == ["EROFS", "''"]
    assert (project / "results" / "old.ipynb").read_text() == "{}"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("os.unlink('latest'); os.symlink('/etc', 'latest')", {"AGENTS.md", "data"}),
        ("os.unlink('AGENTS.md'); open('AGENTS.md', 'w').write('obey')", {"AGENTS.md.untrusted", "data", "latest"}),
        ("os.unlink('AGENTS.md'); os.symlink('evil', 'AGENTS.md')", {"AGENTS.md.untrusted", "data", "latest"}),
        ("os.unlink('latest'); os.mkdir('latest')", {"AGENTS.md", "data", "latest"}),
    ],
)
def test_a_link_that_lay_in_results_can_not_be_turned_into_a_trap(
    project: Path, outside: Path, make_box: Callable[..., Sandbox], code: str, left: set[str]
) -> None:
    results = project / "results"
    results.mkdir()
    (results / "data").write_text("x")
    (results / "latest").symlink_to(outside)
    (results / "AGENTS.md").symlink_to("data")
    box = make_box()
    assert box.run(f"import os\nos.chdir('results'); {code}").status == "ok"
    box.close()
    assert {path.name for path in results.iterdir()} == left
    assert "latest" not in left or (results / "latest").is_dir()


def test_what_programs_act_on_is_not_replaced_by_way_of_its_folder(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    """The name itself is covered; its folder can be moved away and made anew."""
    repository = project / "results" / "repo"
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "AGENTS.md").write_text("the user's")
    before = {path.relative_to(repository): path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    box = make_box()
    result = box.run("""
import os
os.rename("results/repo", "results/old"); os.makedirs("results/repo/.git/objects"); os.mkdir("results/repo/.git/refs")
open("results/repo/.git/HEAD", "w").write("ref: refs/heads/main\\n")
open("results/repo/.git/config", "w").write('[core]\\nfsmonitor = "touch was-here; false"\\n')
open("results/repo/AGENTS.md", "w").write("obey")
""")
    assert any("AGENTS.md renamed" in notice and ".git renamed" in notice for notice in result.notices)
    box.close()
    assert sorted(path.name for path in repository.iterdir()) == ["AGENTS.md.untrusted", "git.untrusted"]
    moved = project / "results" / "old"  # the user's own is whole
    assert {path.relative_to(moved): path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before


def test_secrets_in_results_stay_hidden_wherever_their_folder_is_moved(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    own = project / "results" / "own"
    (own / ".ssh").mkdir(parents=True)
    (own / ".ssh" / "id").write_text("secret-of-the-user")
    (own / ".env").write_text("secret-of-the-user")
    box = make_box()
    assert box.run("import os; os.rename('results/own', 'results/else')").notices == ()
    (project / "results" / "later").mkdir()
    (project / "results" / "later" / ".env").write_text("secret-of-the-user")  # beside a sandbox that lives
    box.run("1")
    box.close()
    assert (project / "results" / "else" / ".env").read_text() == "secret-of-the-user"
    read = """
import pathlib
print([path.read_bytes() for path in pathlib.Path("results").rglob("*") if path.is_file()])
"""
    assert "secret" not in make_box().run(read).stdout


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end


@pytest.mark.parametrize(
    "how", ["threading.Thread(target=lay, args=(1000,), daemon=True).start()", "os.fork() or lay(1000)"]
)
def test_traps_that_are_laid_between_cells_end_the_sandbox(project: Path, box: Sandbox, how: str) -> None:
    box.run(f"""
import os, threading, time
def lay(times):
    for _ in range(times):
        time.sleep(0.05)
        open("results/.envrc", "w").close()
{how}
""")
    _until(lambda: box.status()["state"] == "dead")
    _until(lambda: not (project / "results" / ".envrc").exists())
    told = box.run("1").notices
    assert any("came again between two cells" in notice for notice in told)
    assert any("envrc" in notice for notice in told)


def test_a_trap_that_is_laid_later_is_disarmed_before_the_next_cell(project: Path, box: Sandbox) -> None:
    box.run("""
import threading, time
threading.Timer(0.2, lambda: open("results/.envrc", "w").write("x")).start()
kept = 1
""")
    _until(lambda: any((project / "results").glob("*.untrusted*")))
    assert not (project / "results" / ".envrc").exists()
    assert box.run("kept").value == 1


def test_what_the_user_puts_into_results_between_cells_is_his(
    project: Path, outside: Path, make_box: Callable[..., Sandbox]
) -> None:
    """As long as the sandbox sleeps nothing that is new can be its own; from the next cell on it is covered."""
    box = make_box()
    assert box.run("1").notices == ()
    _until(lambda: _sleeps(box.status()["pid"]))
    results = project / "results"
    (results / "report.ipynb").write_text("{}")
    (results / ".env").write_text("secret-of-the-user")
    (results / "data").symlink_to(outside)
    (results / "repo").mkdir()
    subprocess.run(["git", "init", "--quiet", str(results / "repo")], check=True)
    tried = box.run("""
import os
open("results/report.ipynb", "a").write("evil")
print(open("results/.env").read() + open("results/report.ipynb").read())
try: os.rename("results/report.ipynb", "results/other")
except OSError as exc: print(exc.strerror)
""")
    assert tried.stdout == "\nDevice or resource busy\n"
    names = "results/.env, results/repo/.git/config have appeared and their names are hidden by files.hide"
    assert tried.notices == (f"{names}: inside they read as empty.",)
    assert (results / "data").is_symlink()
    box.run("open('results/conftest.py', 'w').close(); os.unlink('results/data'); os.symlink('/etc', 'results/data')")
    box.close()
    left = sorted(path.name for path in results.iterdir())
    assert left == [".env", "conftest.py.untrusted", "repo", "report.ipynb"]
    assert (results / "report.ipynb").read_text() == "{}"
    assert (results / "repo" / ".git" / "HEAD").exists()


def _sleeps(pid: int) -> bool:
    """Whether nothing inside runs, for longer than the supervisor takes to look twice."""
    first, end = processes.run_times(pid), time.monotonic() + 2
    while first is not None and processes.run_times(pid) == first:
        if time.monotonic() > end:
            return True
    return False


def test_the_users_own_work_in_a_repository_in_results_is_left_alone(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    repository = project / "results" / "repo"
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    box = make_box()
    box.run("1")
    subprocess.run(["git", "-C", str(repository), "config", "user.name", "Ada"], check=True)  # a new file of that name
    assert box.run("2").notices == ()
    box.close()
    assert "Ada" in (repository / ".git" / "config").read_text()


def test_links_out_of_results_are_removed_and_those_inside_stay(project: Path, box: Sandbox) -> None:
    result = box.run("""
import os
os.makedirs("results/sub"); open("results/data.csv", "w").write("a")
out = {"a": "/etc/passwd", "b": "../src/model.py", "c": "sub/../../src", "d": "here/../src", "sub/e": "../../x"}
os.symlink(".", "results/here")
for name, target in out.items(): os.symlink(target, "results/" + name)
os.symlink("data.csv", "results/latest"); os.symlink("../data.csv", "results/sub/up")
""")
    assert result.status == "ok"
    links = {
        str(path.relative_to(project / "results")) for path in (project / "results").rglob("*") if path.is_symlink()
    }
    assert links == {"here", "latest", "sub/up"}
    assert any("link out of this folder" in notice for notice in result.notices)


def test_a_results_folder_that_is_a_link_elsewhere_is_refused(
    project: Path, outside: Path, make_box: Callable[..., Sandbox]
) -> None:
    (project / "results").symlink_to(outside)
    with pytest.raises(PolicyError, match=r"results"):
        make_box()


def test_what_holds_more_files_than_can_be_watched_ends_the_sandbox_and_starts_none(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    for k in range(4):
        (project / "results" / str(k)).mkdir(parents=True)
        (project / "results" / str(k) / "first").touch()
        for i in range(50_000):
            os.link(project / f"results/{k}/first", project / f"results/{k}/{i}")
    box = make_box(overrides={"limits.disk": "16GiB"})
    result = box.run("""
import os
os.makedirs("results/new")
for k in range(20):
    open(f"results/new/{k}.csv", "w").close()
    for i in range(10_000): os.link(f"results/new/{k}.csv", f"results/new/{k}.{i}")
    os.makedirs(f"results/new/n{k}"); open(f"results/new/n{k}/conftest.py", "w").close()
import time; time.sleep(600)
""")
    assert result.limit is not None, (result.status, result.error)
    assert result.limit.name == "files"
    assert "can't be watched" in result.limit.text
    box.close()
    assert (project / "results/new/n0").is_dir()
    assert not [*(project / "results").rglob("conftest.py")]
    with pytest.raises(StartError, match=r"files\.write: .*/results holds more than 300,000 entries"):
        make_box()


def test_a_host_socket_in_the_project_does_not_answer(project: Path, make_box: Callable[..., Sandbox]) -> None:
    import socket

    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(project)  # a socket's path is short
        try:
            server.bind("service.sock")
        finally:
            os.chdir(here)
        server.listen(1)
        code = "import socket\nprint(errno_of(lambda: socket.socket(socket.AF_UNIX).connect('service.sock')))"
        assert make_box().run(TRY + code).stdout.strip() == "ECONNREFUSED"


@pytest.mark.parametrize("when", ["before it starts", "between two cells"])
def test_nothing_of_the_hosts_answers_in_results(project: Path, make_box: Callable[..., Sandbox], when: str) -> None:
    """A writable folder is shown itself: what a program outside listens at there is covered."""
    import socket

    results = project / "results"
    results.mkdir()
    box = make_box()
    if when == "between two cells":
        assert box.run("1").notices == ()
        _until(lambda: _sleeps(box.status()["pid"]))
    else:
        box.close()
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(results)  # a socket's path is short
        try:
            server.bind("service.sock")
        finally:
            os.chdir(here)
        server.listen(1)
        server.setblocking(False)
        os.mkfifo(results / "pipe")
        pipe = os.open(results / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        code = (
            TRY
            + """
import os, socket
print(errno_of(lambda: socket.socket(socket.AF_UNIX).connect('results/service.sock')),
      errno_of(lambda: os.write(os.open('results/pipe', os.O_WRONLY | os.O_NONBLOCK), b'x')))
"""
        )
        box.start()
        assert box.run(code).stdout.split()[0] == "ECONNREFUSED"
        with pytest.raises(BlockingIOError):
            server.accept()
        assert os.read(pipe, 1) == b""
        os.close(pipe)
    assert (results / "service.sock").is_socket()
    assert (results / "pipe").is_fifo()


def test_reading_can_be_narrowed_to_named_folders(project: Path, make_box: Callable[..., Sandbox]) -> None:
    box = make_box(policy={"files": {"read": ["data"]}})
    result = box.run(
        "import os; print(sorted(os.listdir('.')), os.path.exists('src/model.py'), open('data/x.csv').read())"
    )
    assert result.stdout.startswith("['data', 'results'] False a,b"), result.stdout


def test_a_readonly_workspace_refuses_every_write_outside_results(
    project: Path, make_box: Callable[..., Sandbox]
) -> None:
    box = make_box(policy={"files": {"workspace": "readonly"}})
    result = box.run(TRY + "print(errno_of(lambda: open('new', 'w')), errno_of(lambda: open('results/new', 'w')))")
    assert result.stdout.split() == ["EROFS", "worked"]


def test_the_interpreters_folders_can_be_read_and_not_written(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY
        + """
import sys, sysconfig
places = [sysconfig.get_paths()["purelib"], sys.prefix, "/usr/lib", "/etc", "/"]
[errno_of(lambda: open(os.path.join(place, "probe.pth"), "w")) for place in places]
"""
    )
    assert set(told) <= {"EROFS", "EACCES"}


def test_an_empty_results_folder_that_was_made_for_the_sandbox_goes_with_it(project: Path) -> None:
    with Sandbox(project=project) as box:
        box.run("1")
        assert (project / "results").is_dir()
    assert not (project / "results").exists()


# -- a supervisor that was killed


def records() -> list[Path]:
    folder = state.folder("left-behind")
    return sorted(folder.iterdir()) if folder.exists() else []


def record_of(project: Path) -> Path:
    known = (path for path in records() if path.suffix == ".json")  # beside it what says that its sandbox is at rest
    (found,) = (path for path in known if json.loads(path.read_text())["path"] == str(project / "results"))
    return found


def disarm(paths: list[Path]) -> list[str]:
    done: list[str] = []
    left_behind.disarm(paths, done)
    return done


@pytest.fixture
def crash(project: Path, make_box: Callable[..., Sandbox]) -> Callable[[str], Sandbox]:
    """Kill the supervisor in the middle of a cell that has run ``code`` in results/; the sandbox that had the cell."""

    def kill(code: str) -> Sandbox:
        def when_it_is_done(kind: str, content: dict[str, Any]) -> None:
            if "done" in content.get("text", ""):
                os.kill(Supervisor.current().pid, signal.SIGKILL)

        box = make_box()
        code = f"import os, time\nos.chdir('results')\n{code}\nprint('done', flush=True)\ntime.sleep(60)"
        assert box.run(code, on_output=when_it_is_done).status == "died"
        return box

    for left in records():
        left.unlink()  # of tests that kill as well
    return kill


LAY = """
os.symlink('/etc/passwd', 'out'); open('.envrc', 'w').write('evil'); os.makedirs('n/.git'); os.chmod('.', 0o777)
"""


def test_what_a_killed_supervisor_could_not_disarm_is_disarmed_by_the_next(
    project: Path, crash: Callable[[str], Sandbox]
) -> None:
    results = project / "results"
    (results / "own" / ".git").mkdir(parents=True)
    (results / "own.ipynb").write_text("the user's")
    (results / "ext").symlink_to("/etc")
    box = crash(LAY)
    assert os.path.lexists(results / "out")
    assert stat.S_IMODE(results.stat().st_mode) == 0o777
    assert [stat.S_IMODE(path.stat().st_mode) for path in (*records(), records()[0].parent)] == [0o600, 0o700]
    first = box.run("1")
    told = [notice for notice in first.notices if "supervisor was killed" in notice]
    assert len(told) == 1
    assert all(f"results/{name} re" in told[0] for name in ("out", ".envrc", "n/.git"))
    found = {str(path.relative_to(results)) for path in results.rglob("*")}
    assert found == {"own", "own/.git", "own.ipynb", "ext", "envrc.untrusted.env", "n", "n/git.untrusted"}
    assert (results / "own.ipynb").read_text() == "the user's"
    assert stat.S_IMODE(results.stat().st_mode) == 0o755
    swept = [record for record in iter_records(default_path()) if record["action"] == "files.swept"]
    assert any("results/.envrc" in text for text in swept[-1]["details"]["removed"])
    box.close()
    assert records() == []


def test_what_the_user_has_made_since_the_supervisor_was_killed_stays(
    project: Path, crash: Callable[[str], Sandbox]
) -> None:
    results = project / "results"
    crash(LAY)
    last = max(results.joinpath(name).lstat().st_ctime_ns for name in ("out", ".envrc", "n/.git"))
    own = results / "conftest.py"
    own.write_text("the user's")
    while own.stat().st_ctime_ns <= last:  # the clock of file systems goes in steps
        own.touch()
    # The time of a last change can't be set: as if the sandbox had ended longer ago.
    record = record_of(project)
    os.utime(record, ns=(0, last - int(left_behind._MARGIN_SECONDS * 1e9)))
    assert len(disarm([results])) == 3
    assert {path.name for path in results.iterdir()} == {"envrc.untrusted.env", "n", "conftest.py"}


def test_the_record_of_a_supervisor_that_lives_is_left_alone(project: Path, box: Sandbox) -> None:
    held = record_of(project)
    trap = project / "results" / "conftest.py"
    trap.write_text("laid in this moment")
    assert disarm([project / "results"]) == []
    assert held.exists()
    trap.unlink()
    assert box.run("open('results/conftest.py', 'w').close()").notices != ()
    assert held.exists()
    box.close()
    assert not held.exists()


def test_a_record_is_followed_for_folders_above_and_below_and_no_other(
    project: Path, crash: Callable[[str], Sandbox]
) -> None:
    crash(LAY)
    assert disarm([project / "data", project / "results2"]) == []
    assert len(disarm([project / "results" / "n"])) == 3
    assert records() == []


def test_after_the_machines_next_start_file_systems_may_have_other_numbers(
    project: Path, crash: Callable[[str], Sandbox]
) -> None:
    (project / "results").mkdir()
    (project / "results" / "own.ipynb").write_text("the user's")
    crash(LAY)
    record = record_of(project)
    fields = json.loads(record.read_text())
    other = fields["device"] + 1
    fields["here"] = {name: [kind, other, *rest] for name, (kind, _, *rest) in fields["here"].items()}
    record.write_text(json.dumps({**fields, "device": other}))
    assert len(disarm([project / "results"])) == 3
    assert (project / "results" / "own.ipynb").exists()


def test_a_folder_that_is_another_than_it_was_is_told_and_not_touched(
    project: Path, crash: Callable[[str], Sandbox]
) -> None:
    crash(LAY)
    (project / "results").rename(project / "moved")
    (project / "results").mkdir()
    (project / "results" / ".envrc").write_text("the user's")
    assert "another folder" in disarm([project / "results"])[0]
    assert (project / "results" / ".envrc").exists()
    assert records() == []


def test_of_more_names_than_a_record_holds_the_older_are_the_users(
    project: Path, crash: Callable[[str], Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "results").mkdir()
    for number in range(50):
        (project / "results" / f"{number}.ipynb").write_text("the user's")
    crash(LAY)
    record = record_of(project)
    fields = json.loads(record.read_text())
    fields |= {"here": dict(list(fields["here"].items())[:10]), "whole": False}
    record.write_text(json.dumps(fields))
    assert len(disarm([project / "results"])) == 3
    assert len(list((project / "results").glob("*.ipynb"))) == 50


def _changed(**fields: Any) -> Callable[[dict[str, Any]], str]:
    return lambda record: json.dumps({**record, **fields})


@pytest.mark.parametrize(
    "change",
    [
        lambda record: "",
        lambda record: json.dumps(record)[:-20],
        lambda record: "[" * 200_000,
        lambda record: "[1, 2]",
        lambda record: json.dumps({name: value for name, value in record.items() if name != "here"}),
        _changed(path="results"),
        _changed(path="/a/../etc"),
        _changed(path=7),
        _changed(mode=0o1777777),
        _changed(inode=True),
        _changed(here=["x"]),
        _changed(here={"x": [1, 2, 3]}),
        _changed(here={"x": [1, 2, "3", ""]}),
        _changed(protected="*"),
        _changed(hidden=[["*"]]),
        _changed(processes=[[0, 1]]),
        _changed(processes=[[1 << 70, 1]]),
        _changed(processes=7),
        _changed(whole="yes"),
    ],
)
def test_a_damaged_record_is_told_and_removed(
    project: Path, make_box: Callable[..., Sandbox], change: Callable[[dict[str, Any]], str]
) -> None:
    (project / "results").mkdir()
    (project / "results" / ".envrc").write_text("x")
    make_box()
    record = record_of(project)
    whole = json.loads(record.read_text())
    bad = record.with_name("0" * 16 + ".json")
    bad.write_text(change(whole))
    assert "damaged" in disarm([project / "results"])[0]
    assert not bad.exists()
    assert (project / "results" / ".envrc").exists()


def test_a_sandbox_that_has_not_ended_is_waited_for(
    project: Path, crash: Callable[[str], Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(LAY)
    record = record_of(project)
    fields = json.loads(record.read_text())
    with subprocess.Popen(["sleep", "60"]) as process:
        fields["processes"] = [[process.pid, left_behind.processes.started(process.pid)]]
        record.write_text(json.dumps(fields))
        monkeypatch.setattr(left_behind, "_END_SECONDS", 0.01)
        with pytest.raises(StartError, match="has not ended"):
            disarm([project / "results"])
        assert os.path.lexists(project / "results" / "out")
        process.kill()
    assert len(disarm([project / "results"])) == 3


def test_where_no_record_can_be_kept_nothing_starts(project: Path, make_box: Callable[..., Sandbox]) -> None:
    for left in records():
        left.unlink()
    state.folder("left-behind").rmdir()
    state.folder("left-behind").write_text("a file where a folder should be")
    try:
        with pytest.raises(StartError, match="left-behind"):
            make_box()
    finally:
        state.folder("left-behind").unlink()
