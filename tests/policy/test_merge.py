"""Promises about one layer on top of another: untrusted layers tighten, trusted ones decide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.policy.merge import NotGranted, locator, meet, merge
from ipysandbox.policy.model import Policy
from ipysandbox.policy.schema import FIELDS

locate = locator("/p", "/h")
GIB = 2**30

# key, what the user has, what the project wants, what it gets, what of it is not granted
UNTRUSTED: list[tuple[str, Any, Any, Any, Any]] = [
    ("limits.memory", 4 * GIB, 8 * GIB, 4 * GIB, 8 * GIB),
    ("limits.memory", 4 * GIB, 2 * GIB, 2 * GIB, None),
    ("limits.cpu", 300.0, 300.0, 300.0, None),
    ("limits.processes", 256, 1024, 256, 1024),
    ("files.read", (".",), ("src", "data"), ("src", "data"), None),
    ("files.read", (".",), ("/etc",), (), ("/etc",)),
    ("files.read", (".",), ("../other", "src"), ("src",), ("../other",)),
    ("files.read", (".",), ("~/.ssh",), (), ("~/.ssh",)),
    ("files.read", ("src",), (".",), ("src",), (".",)),
    ("files.read", ("src",), ("srcs",), (), ("srcs",)),
    ("files.read", ("src", "data"), ("src/a", "/p/data"), ("src/a", "/p/data"), None),
    ("files.read", (".", "/data"), ("/data/x",), ("/data/x",), None),
    ("files.read", (".",), (), (), None),
    ("files.write", ("results",), ("results", "src/strategies"), ("results",), ("src/strategies",)),
    ("files.write", ("results",), ("results/a",), ("results/a",), None),
    ("files.write", ("results",), (".",), ("results",), (".",)),
    ("files.write", ("results",), ("results/../src",), (), ("results/../src",)),
    ("files.hide", (".env",), ("private",), (".env", "private"), None),
    ("files.hide", (".env",), ("!.env", "x"), (".env", "x"), ("!.env",)),
    ("files.workspace", "overlay", "readonly", "readonly", None),
    ("files.workspace", "readonly", "overlay", "readonly", "overlay"),
    ("code.profile", "default", "off", "default", "off"),
    ("code.profile", "off", "default", "default", None),
    ("code.deny", ("a",), ("b",), ("a", "b"), None),
    ("require", ("network",), ("disk",), ("network", "disk"), None),
    ("code.allow", (), ("call.os-system",), (), ("call.os-system",)),
    ("code.allow", ("a", "b"), ("b",), ("b",), None),
    ("output.html", "sanitize", "text", "text", None),
    ("output.stdin", "visible", "off", "off", None),
    ("output.stdin", "off", "visible", "off", "visible"),
    ("output.html", "text", "sanitize", "text", "sanitize"),
    ("output.html", "sanitize", "isolate", "sanitize", "isolate"),
    ("output.widgets", False, True, False, True),
    ("output.widgets", True, False, False, None),
    ("start.mode", "fork", "exec", "exec", None),
    ("start.mode", "exec", "fork", "exec", "fork"),
    ("start.preload", ("numpy", "pandas"), ("pandas", "evil"), ("pandas",), ("evil",)),
    ("start.pool", 1, 8, 1, 8),
    ("start.pool", 1, 0, 0, None),
    ("environment.allow", (), ("LAB",), (), ("LAB",)),
    ("environment.allow", ("LAB", "X"), ("LAB",), ("LAB",), None),
    ("data.source_path", None, "/data", None, "/data"),
    ("data.source_path", "/data", "/data/x", "/data/x", None),
    ("data.source_path", "/data", "/", "/data", "/"),
    ("data.source_path", "/data", "/other", None, "/other"),
]


@pytest.mark.parametrize(("key", "had", "wanted", "granted", "refused"), UNTRUSTED)
def test_an_untrusted_layer_gets_only_what_is_tighter(
    key: str, had: Any, wanted: Any, granted: Any, refused: Any
) -> None:
    base = Policy().with_value(key, had)
    policy, decided, not_granted = merge(base, {key: wanted}, trusted=False, locate=locate)
    assert policy.get(key) == granted
    assert policy.with_value(key, had) == base
    assert decided == ((key,) if granted != had else ())
    assert [n.wanted for n in not_granted] == ([] if refused is None else [refused])


def test_every_key_has_a_row_or_can_only_be_the_default() -> None:
    open_keys = {key for key, field in FIELDS.items() if field.built is None or len(field.built) > 1}
    same_rule = {key for key in open_keys if key.startswith("limits.")}
    assert open_keys - same_rule <= {row[0] for row in UNTRUSTED}


TRUSTED: list[tuple[str, Any, Any, Any]] = [
    ("limits.memory", 4 * GIB, 8 * GIB, 8 * GIB),
    ("files.read", (".",), ("/data",), ("/data",)),
    ("files.write", ("results",), ("src",), ("src",)),
    ("files.hide", (".env", "*.pem"), ("!*.pem", "x"), (".env", "*.pem", "!*.pem", "x")),
    ("code.profile", "default", "off", "off"),
    ("code.deny", ("a",), ("b",), ("a", "b")),
    ("code.allow", ("a",), ("b",), ("b",)),
    ("environment.allow", ("A",), ("B",), ("B",)),
    ("data.source_path", None, "/data", "/data"),
]


@pytest.mark.parametrize(("key", "had", "wanted", "granted"), TRUSTED)
def test_a_trusted_layer_decides(key: str, had: Any, wanted: Any, granted: Any) -> None:
    policy, decided, refused = merge(Policy().with_value(key, had), {key: wanted}, trusted=True, locate=locate)
    assert (policy.get(key), decided, refused) == (granted, (key,), ())


paths = st.lists(st.sampled_from([".", "a", "a/b", "a/b/c", "b", "/x", "/x/a", "~", "~/a", "..", "a/../b"]), max_size=4)
values = {
    "limits.memory": st.integers(1, 100),
    "files.read": paths.map(tuple),
    "files.write": paths.map(tuple),
    "files.hide": st.lists(st.sampled_from(["a", "b", "!a", "*.c"]), unique=True).map(tuple),
    "files.workspace": st.sampled_from(["overlay", "readonly"]),
    "code.profile": st.sampled_from(["off", "default"]),
    "code.deny": st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    "code.allow": st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    "output.html": st.sampled_from(["isolate", "sanitize", "text"]),
    "output.stdin": st.sampled_from(["visible", "off"]),
    "output.widgets": st.booleans(),
    "environment.allow": st.lists(st.sampled_from("ABC"), unique=True).map(tuple),
}


def covered(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    tops = [locate(entry).rstrip("/") for entry in outer]
    return all(any((locate(entry) + "/").startswith(top + "/") for top in tops) for entry in inner)


@given(st.data(), st.sampled_from(sorted(values)))
def test_no_untrusted_wish_ever_loosens(data: st.DataObject, key: str) -> None:
    had, wanted = data.draw(values[key]), data.draw(values[key])
    got = meet(key, had, wanted, locate)
    if key in ("files.read", "files.write"):
        assert covered(got, had)
        assert covered(got, wanted)
    elif key in ("code.allow", "environment.allow"):
        assert set(got) <= set(had) & set(wanted)
    elif key == "code.deny":
        assert set(got) == set(had) | set(wanted)
    elif key == "files.hide":
        assert {n for n in got if n.startswith("!")} <= set(had)
        assert {n for n in (*had, *wanted) if not n.startswith("!")} <= set(got)
    else:
        order = list(FIELDS[key].choices) or list(range(100, -1, -1))
        assert order.index(got) >= max(order.index(had), order.index(wanted))
    # Asking twice changes nothing but, for paths, the order in which they are named.
    again = meet(key, got, wanted, locate)
    assert again == got or key == "files.hide" or (key in ("files.read", "files.write") and set(again) == set(got))


def test_a_refused_wish_reads_as_old_and_new() -> None:
    wishes = {"limits.memory": 64 * GIB, "files.read": (".", "/etc"), "limits.wall": 7200.0}
    _, _, refused = merge(Policy(), wishes, trusted=False, locate=locate)
    assert [str(r) for r in refused] == [
        "limits.memory 4GiB → 64GiB",
        "files.read + /etc",
        "limits.wall 10min → 2h",
    ]


def test_a_card_is_called_one() -> None:
    assert str(NotGranted("limits.gpu.devices", (), ("0", "1"))) == "limits.gpu.devices + card 0, card 1"
