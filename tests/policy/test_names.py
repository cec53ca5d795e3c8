"""Promises about names: secrets are hidden wherever they lie, and what others would execute is never written."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.policy import PROFILES, compile_patterns, is_hidden
from ipysandbox.policy.names import PROTECTED
from ipysandbox.policy.patterns import originals

HIDE = PROFILES["default"].files.hide


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "deep/er/.env",
        ".ENV",
        ".env.local",
        "prod.env",
        "certs/server.pem",
        "server.KEY",
        "a/id_rsa",
        "id_ed25519.pub",
        "id_ed25519_sk",
        ".netrc",
        ".ssh/known_hosts",
        "x/.aws/credentials",
        ".git/config",
        "sub/.git/config",
        ".git/modules/x/config",
        ".git/logs/HEAD",
        ".git/FETCH_HEAD",
        ".config/gcloud/x.db",
        "home/.config/gh/hosts.yml",
        "client_secret_1234.json",
        "service-account-prod.json",
        "infra/terraform.tfstate",
        ".streamlit/secrets.toml",
        ".kaggle/kaggle.json",
        ".cache/huggingface/token",
        ".local/share/jupyter/runtime/kernel-1.json",
        ".jupyter/jupyter_server_config.json",
        ".bash_history",
        ".python_history",
        ".local/share/ipysandbox/trusted.json",
        ".local/state/ipysandbox/left-behind/0123456789abcdef.json",
        ".hg/hgrc",
        ".svn/auth/svn.simple/0123",
        ".dvc/config.local",
        ".cargo/credentials.toml",
        ".cargo/credentials",
        ".mcp.json",
        ".vscode/sftp.json",
        ".history/src/.env_20260101120000",
        "credentials.yaml",
        "ana_accessKeys.csv",
        "study-firebase-adminsdk-x1.json",
        "prj_1234_D5678.ngc",
        "deploy_rsa",
        "pip.conf",
        "kubeconfig.yml",
        ".config/rclone/rclone.conf",
        ".copernicusmarine/.copernicusmarine-credentials",
        "openai_api_key.txt",
        ".Rhistory",
    ],
)
def test_what_looks_like_a_secret_is_hidden(path: str) -> None:
    assert is_hidden(path, HIDE)
    assert is_hidden(PurePosixPath("project") / path, HIDE)


@pytest.mark.parametrize(
    "path",
    [
        # Jupyter
        ".ipynb_checkpoints/.env-checkpoint",
        ".ipynb_checkpoints/.netrc-checkpoint",
        ".ipynb_checkpoints/credentials-checkpoint.json",
        "a/.ipynb_checkpoints/secrets-checkpoint.toml",
        ".dvc/.ipynb_checkpoints/config-checkpoint.local",
        "credentials-Copy1.json",
        "credentials-Copy1-Copy2.json",
        "-Copy1.netrc",
        ".~credentials.json",
        "credentials.json.invalid",
        # editors
        ".env~",
        "#.env#",
        ".netrc~",
        ".netrc.~3~",
        "server.pem~",
        ".server.key.swp",
        ".netrc.swo",
        ".secrets.toml.un~",
        "credentials.json.save",
        "credentials.json.save.1",
        ".credentials.json.kate-swp",
        "credentials.json___jb_tmp___",
        # hands
        "server.key.bak",
        "server.key.bak~",
        "server.pem.bak.old",
        "SERVER.PEM.BAK",
        "secrets.toml.bak",
        "secrets.toml.bak2",
        "secrets.toml.orig",
        "secrets_backup.toml",
        "secrets.backup.toml",
        "secrets_old.json",
        "terraform.tfstate.backup",
        ".ssh.bak/config",
        ".aws_old/x",
        ".config copy/gh/hosts.yml",
        ".git/config.bak",
        # browsers, file managers, shared folders
        "credentials (1).json",
        "credentials (copy).json",
        "credentials copy.json",
        "credentials copy 2.json",
        "credentials - Copy.json",
        "credentials - Copy (2).json",
        "Copy of credentials.json",
        "credentials (Ana's conflicted copy 2026-01-02).json",
        "credentials.sync-conflict-20260102-120000-ABCDEFG.json",
        "credentials.json.1",
    ],
)
def test_a_copy_of_what_is_hidden_is_hidden(path: str) -> None:
    assert is_hidden(path, HIDE)


@pytest.mark.parametrize(
    ("patterns", "path", "hidden"),
    [
        (["plan.txt"], "plan.txt~", True),
        (["plan.txt"], "plan.txt.bak.bak", True),
        (["plan*"], "x (1)", False),
        (["/docs/plan.txt"], "docs/.ipynb_checkpoints/plan-checkpoint.txt", True),
        (["/docs/plan.txt"], "x/docs/plan.txt~", False),
        (["docs/*.txt"], "docs.old/plan.txt", True),
        (["plan.txt"], "plan.txt.html", False),
        (["plan.txt"], "plan-b.txt", False),
        (["plan.txt"], "plan copies.txt", False),
        # "!" means that name alone
        (["*.pem", "!my.pem"], "my.pem", False),
        (["*.pem", "!my.pem"], "my.pem~", True),
        (["*.pem", "!my.pem~"], "my.pem~", False),
        (["*.pem", "!my.pem~"], "my.pem", True),
        (["*.pem", "!my.pem~", "my.pem~"], "my.pem~", True),
    ],
)
def test_the_users_patterns_mean_copies_too_and_exceptions_do_not(patterns: list[str], path: str, hidden: bool) -> None:
    assert is_hidden(path, patterns) is hidden


def test_what_a_pattern_says_of_git_holds_in_every_repository() -> None:
    def hidden(path: str, *patterns: str) -> bool:
        return compile_patterns(patterns or HIDE).match(path.rsplit("/", 1)[-1], path, in_repository=True)

    assert hidden("mirror.git/config")
    assert hidden("mirror.git/config.bak")
    assert hidden("mirror.git/logs")
    assert not hidden("mirror.git/HEAD")
    assert not hidden("mirror.git/objects")
    assert not hidden("mirror.git/config", ".git/config", "!mirror.git/config")
    assert not compile_patterns(HIDE).match("config", "mirror.git/config")


@given(st.text("ab~#.- ()_1kcopyld", max_size=40))
def test_to_look_for_what_a_copy_was_made_of_comes_to_an_end(name: str) -> None:
    found = originals(name)
    assert len(found) == len(set(found))
    assert all(0 < len(one) < len(name) for one in found)


@pytest.mark.parametrize(
    "path",
    [
        "analysis.ipynb",
        "data/raw/x.csv",
        "environment.yml",
        "src/env.py",
        "config.py",
        ".git/HEAD",
        ".git/objects/ab/cd",
        "config/settings.toml",
        ".env.example",
        "site-packages/certifi/cacert.pem",
        "keys.csv",
        "monkey.py",
        "keyboard/layout.txt",
        "token_counts.json",
        "history.csv",
        "secrets_of_the_sea.txt",
        "ssh/notes.md",
        "data/part.1",
        "notes copy.txt",
        "model (1).pt",
        "x.csv.bak",
        ".ipynb_checkpoints/analysis-checkpoint.ipynb",
        "Makefile.old",
        ".env-example",
    ],
)
def test_ordinary_files_are_seen(path: str) -> None:
    assert not is_hidden(path, HIDE)


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "results/.git",
        "results/.GIT/config",
        "paper.ipynb",
        "results/x.ipynb",
        ".ipynb_checkpoints/x",
        "ipysandbox.toml",
        "results/ipysandbox.toml",
        "pyproject.toml",
        "conftest.py",
        "sitecustomize.py",
        "evil.pth",
        ".vscode/tasks.json",
        ".envrc",
        ".github/workflows/x.yml",
        ".bashrc",
        ".jupyter/x",
        ".ipython/profile_default/startup/x.py",
        "results/test_model.py",
        "results/model_test.py",
        "results/__pycache__/conftest.cpython-311-pytest-9.0.0.pyc",
        "results/.jupytext.py",
        "jupytext.toml",
        "sitecustomize/__init__.py",
        "sitecustomize.pyc",
        "sitecustomize.cpython-311-x86_64-linux-gnu.so",
        "__pycache__/usercustomize.cpython-311.pyc",
        "dodo.py",
        "Taskfile.yml",
        ".justfile",
        ".pdbrc.py",
        ".pdm-python",
        "rust-toolchain.toml",
        "profile.do",
        ".emacs",
        "eslint.config.mjs",
        "Jenkinsfile",
        ".bash_aliases",
    ],
)
def test_what_another_program_would_obey_is_protected(path: str) -> None:
    assert compile_patterns(PROTECTED).covers(path)


@pytest.mark.parametrize(
    "path",
    [
        "results/x.csv",
        "results/fig.png",
        "results/model.pkl",
        "src/a.py",
        "notes.md",
        "a.toml",
        "results/test_scores.csv",
        "results/latest.py",
        "results/testing.py",
        "results/Makefile",
        "results/Snakefile",
        "results/package.json",
        "results/environment.yml",
        "results/conftest.py.untrusted",
        "results/.envrc~",
    ],
)
def test_ordinary_results_are_not_protected(path: str) -> None:
    assert not compile_patterns(PROTECTED, copies=False).covers(path)


@pytest.mark.parametrize(
    ("patterns", "path", "hidden"),
    [
        (["a"], "a", True),
        (["a"], "b/a", True),
        (["a"], "a/b", True),
        (["a"], "ab", False),
        (["a/b"], "a/b", True),
        (["a/b"], "x/a/b", True),
        (["a/b"], "a/b/c", True),
        (["a/b"], "xa/b", False),
        (["a/b"], "a/x/b", False),
        (["/a"], "a", True),
        (["/a"], "x/a", False),
        (["/a/b*"], "a/bc", True),
        (["a/"], "a", True),
        (["*.x"], "y/n.x", True),
        (["*.x"], "n.x.y", False),
        (["a*/b?"], "q/abc/bz", True),
        (["[ab]x"], "bx", True),
        (["*", "!keep"], "keep", False),
        (["*", "!keep"], "other", True),
        (["!keep", "*"], "keep", True),
        (["d", "!d/keep"], "d/keep", True),
        (["*.x", "!a.x", "a.x"], "a.x", True),
        (["É"], "é", True),
        ([], "a", False),
        (["a\nb"], "a\nb", True),
        (["*"], "a\nb", True),
    ],
)
def test_patterns_mean_what_gitignore_users_expect(patterns: list[str], path: str, hidden: bool) -> None:
    assert is_hidden(path, patterns) is hidden


@given(st.lists(st.text("ab*?[]/!.", min_size=1, max_size=8), max_size=5), st.text("ab/.", max_size=12))
def test_no_pattern_breaks_the_matcher(patterns: list[str], path: str) -> None:
    compile_patterns([p for p in patterns if p.strip("/!")]).covers(path)


def test_a_hundred_thousand_names_take_about_a_second() -> None:
    matcher = compile_patterns(HIDE)
    names = [(f"file{i}.csv", f"data/part{i % 97}/file{i}.csv") for i in range(100_000)]
    started = time.perf_counter()
    assert not any(matcher.match(name, relpath) for name, relpath in names)
    assert time.perf_counter() - started < 5


def test_a_pattern_made_to_stall_the_matcher_does_not() -> None:
    matcher = compile_patterns(["*a" * 90 + "b", "x/" + "*a" * 40 + "c"])
    started = time.perf_counter()
    assert not matcher.covers("x/" + "a" * 255)
    assert time.perf_counter() - started < 2
