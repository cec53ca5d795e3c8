"""Promises about host variables: nothing is passed unasked, credentials never, and no message shows a value."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.errors import PolicyError
from ipysandbox.policy.credentials import looks_like_credential, secret_format, sort_variables, why_refused

if TYPE_CHECKING:
    from .conftest import Machine

LETTERS = string.ascii_letters + string.digits


def made_up(prefix: str, length: int, alphabet: str = LETTERS) -> str:
    return prefix + "".join(random.Random(prefix).choices(alphabet, k=length))


# fmt: off
CREDENTIAL_NAMES = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN",
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "KAGGLE_KEY",
    "PGPASSWORD", "PGPASSFILE", "DATABASE_URL", "MYSQL_PWD", "REDIS_URL", "MONGODB_URI", "JUPYTER_TOKEN",
    "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "KUBECONFIG", "DOCKER_HOST", "VAULT_ADDR", "SLACK_WEBHOOK",
    "MY_SERVICE_TOKEN", "MY_SECRET_THING", "DB_PASSWORD", "LAB_API_KEY", "lab_api_key", "NPM_TOKEN",
    "TWINE_PASSWORD", "SENTRY_DSN", "KRB5CCNAME", "XAUTHORITY", "DISPLAY", "EMAIL", "STRIPE_KEY",
    "SOME_PRIVATE_KEY_PATH", "AZURE_STORAGE_CONNECTION_STRING",
]
DANGEROUS_NAMES = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV", "ENV",
    "GLIBC_TUNABLES", "NODE_OPTIONS",
]
# fmt: on
OWN_NAMES = ["PATH", "HOME", "TMPDIR", "MPLCONFIGDIR", "DATA_SOURCE_PATH", "XDG_RUNTIME_DIR"]
# fmt: off
HARMLESS_NAMES = [
    "LAB_NOTE", "TZ", "LANG", "LC_ALL", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID",
    "EXPERIMENT_NAME", "N_JOBS", "KERAS_BACKEND", "TOKENIZERS_PARALLELISM", "PASSAGE_LENGTH", "SEED", "AUTHOR",
    "KEYBOARD", "MONKEY", "PROJECT_ROOT", "HF_HUB_OFFLINE",
]
# fmt: on


@pytest.mark.parametrize("name", CREDENTIAL_NAMES)
def test_credential_names_are_withheld_and_never_passed(name: str) -> None:
    assert looks_like_credential(name, "x")
    assert sort_variables({name: "x"}, [name]).passed == {}


@pytest.mark.parametrize("name", [*DANGEROUS_NAMES, *OWN_NAMES])
def test_names_that_steer_programs_are_never_passed(name: str) -> None:
    assert why_refused(name, "x")


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_ordinary_names_can_be_passed(name: str) -> None:
    assert why_refused(name, "4") is None


SECRET_VALUES = {
    "aws key id": "AKIAIOSFODNN7EXAMPLE",
    "github": made_up("ghp_", 36),
    "github fine": made_up("github_pat_", 60),
    "gitlab": made_up("glpat-", 20),
    "openai": made_up("sk-proj-", 40),
    "anthropic": made_up("sk-ant-api03-", 60),
    "slack": made_up("xoxb-", 40, string.digits + "-"),
    "hugging face": made_up("hf_", 34),
    "google": made_up("AIza", 35),
    "pypi": made_up("pypi-AgEIcHlwaS5vcmc", 60),
    "json web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk",
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n",
    "url": "postgres://alice:hunter2@db.example/x",
    "proxy": "http://u:p@proxy:3128",
    "url with a token only": "https://tok123@git.example/x.git",
    "assignment": "host=db password=hunter2",
    "connection string": "Endpoint=sb://x/;SharedAccessKey=abcdef",
    "header": "Authorization: Bearer abcdefghijklmnop",
    "md5-like": hashlib.md5(b"x").hexdigest(),
    "sha256-like": hashlib.sha256(b"x").hexdigest().upper(),
    "base62": made_up("", 40),
    "in a path": "/srv/x/" + made_up("", 32),
    "base64": base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    "in json": json.dumps({"k": made_up("", 40)}),
    "too long": "a" * 40_000,
}


@pytest.mark.parametrize("value", SECRET_VALUES.values(), ids=SECRET_VALUES.keys())
def test_secret_looking_values_are_withheld_and_never_passed(value: str) -> None:
    assert looks_like_credential("LAB_NOTE", value)
    sorted_ = sort_variables({"LAB_NOTE": value}, ["LAB_NOTE"])
    assert (sorted_.passed, sorted_.withheld) == ({}, ("LAB_NOTE",))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "7",
        "Europe/Berlin",
        "en_US.UTF-8",
        "/home/alice/miniconda3/envs/py311-data/lib/python3.11/site-packages",
        "/usr/lib/x86_64-linux-gnu:/opt/cuda-12.4/lib64",
        "My-Experiment-2024-Run-17-Baseline",
        "experiment_20240101_baseline_v2_final",
        "s3://bucket-name/data/2024/01/part-0001.parquet",
        "https://data.example.org/sets/iris.csv?rows=100",
        "550e8400-e29b-41d4-a716-446655440000",
        "GPU-0,GPU-1",
        "a b c d e f g h i j k l m n o p",
        "TheQuickBrownFoxJumpsOverTheLazyDog",
        "00000000000000000000000000000000000000",
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "alice@example.org",
        "2024-01-01T00:00:00.000000+00:00",
        "3.141592653589793238462643383279",
    ],
)
def test_ordinary_values_can_be_passed(value: str) -> None:
    assert secret_format(value) is None


@pytest.mark.parametrize(
    ("alphabet", "length"), [(LETTERS, 32), ("0123456789abcdef", 40), (LETTERS + "-_", 43), (LETTERS + "+/", 40)]
)
def test_nearly_every_random_key_is_noticed(alphabet: str, length: int) -> None:
    generator = random.Random(1)
    keys = ["".join(generator.choices(alphabet, k=length)) for _ in range(2000)]
    assert sum(secret_format(key) is not None for key in keys) >= 1900


@given(st.text(max_size=200))
def test_any_value_can_be_judged(value: str) -> None:
    secret_format(value)


def test_nothing_of_the_host_is_passed_unasked(machine: Machine) -> None:
    machine.environ.update(LAB="1", OPENAI_API_KEY="sk-x", OTHER="postgres://a:b@c/d")
    effective = machine.resolve()
    assert effective.environment == {}
    assert effective.withheld == ("OPENAI_API_KEY", "OTHER")
    assert effective.dropped == ("HOME", "LAB", "PATH")


def test_named_variables_are_passed_and_unset_ones_are_listed(machine: Machine) -> None:
    machine.environ["LAB"] = "1"
    effective = machine.resolve({"environment": {"allow": ["LAB", "NOT_SET"]}})
    assert (effective.environment, effective.unset) == ({"LAB": "1"}, ("NOT_SET",))


@pytest.mark.parametrize(
    ("name", "value"),
    [("MY_TOKEN", "hunter2hunter2"), ("LAB", made_up("ghp_", 36)), ("LAB", "postgres://a:hunter2@h/d")],
)
def test_an_allowed_credential_is_an_error_that_names_it_without_its_value(
    machine: Machine, name: str, value: str
) -> None:
    machine.environ[name] = value
    file = machine.user_policy(f"[environment]\nallow = [\n 'TZ',\n '{name}']")
    with pytest.raises(PolicyError, match=f"{name} is never passed to a sandbox") as caught:
        machine.resolve()
    assert (caught.value.file, caught.value.line) == (str(file), 4)
    assert value not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_approved_project_can_not_get_credentials_either(machine: Machine) -> None:
    machine.trust(machine.project_policy("[environment]\nallow = ['LAB']"))
    machine.environ["LAB"] = "hf_" + "a1B" * 8  # what was harmless when it was approved
    with pytest.raises(PolicyError, match="LAB is never passed"):
        machine.resolve()


def test_the_display_holds_names_but_no_values(machine: Machine) -> None:
    machine.environ.update(LAB="value-of-lab", MY_TOKEN="value-of-token")
    effective = machine.resolve({"environment": {"allow": ["LAB"]}})
    shown = json.dumps(effective.to_json()) + repr(effective)
    assert "LAB" in shown
    assert "MY_TOKEN" in shown
    assert "value-of" not in shown
