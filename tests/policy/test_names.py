"""Promises about names: secrets are hidden wherever they lie, and what others would execute is never written."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.policy import PROFILES, compile_patterns, is_hidden
from ipysandbox.policy.names import PROTECTED

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
    ],
)
def test_what_looks_like_a_secret_is_hidden(path: str) -> None:
    assert is_hidden(path, HIDE)
    assert is_hidden(PurePosixPath("project") / path, HIDE)


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
    ],
)
def test_what_another_program_would_obey_is_protected(path: str) -> None:
    assert compile_patterns(PROTECTED).covers(path)


@pytest.mark.parametrize(
    "path", ["results/x.csv", "results/fig.png", "results/model.pkl", "src/a.py", "notes.md", "a.toml"]
)
def test_ordinary_results_are_not_protected(path: str) -> None:
    assert not compile_patterns(PROTECTED).covers(path)


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
