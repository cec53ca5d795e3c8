"""Tells credentials among environment variables: by name, and by what the value looks like."""

from __future__ import annotations

import fnmatch
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Names that call their value a secret.
SECRET_NAMES: tuple[str, ...] = (
    "*TOKEN",
    "*TOKENS",
    "*_TOKEN_*",
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*_PASS",
    "*_PWD",
    "*APIKEY*",
    "*API_KEY*",
    "*ACCESS_KEY*",
    "*PRIVATE_KEY*",
    "*SIGNING_KEY*",
    "*ENCRYPTION_KEY*",
    "*CREDENTIAL*",
    "*AUTH_KEY*",
    "*_AUTH",
    "*_AUTH_*",
    "*WEBHOOK*",
    "*CONNECTION_STRING*",
    "*CONN_STR*",
    "*_DSN",
    "*COOKIE*",
)

# Names whose value is a credential, or opens one: agents' sockets, configuration files with passwords in them.
CREDENTIAL_NAMES: tuple[str, ...] = (
    *SECRET_NAMES,
    # clouds
    "AWS_*",
    "AZURE_*",
    "ARM_*",
    "GOOGLE_*",
    "GCP_*",
    "GCLOUD_*",
    "CLOUDSDK_*",
    "BOTO_CONFIG",
    "IBMCLOUD_*",
    "OCI_*",
    "ALIBABA_CLOUD_*",
    "ALICLOUD_*",
    "DIGITALOCEAN_*",
    "DO_PAT",
    "HCLOUD_*",
    "LINODE_*",
    "SCW_*",
    "OS_*",  # OpenStack
    "CLOUDFLARE_*",
    "CF_*",
    "HEROKU_*",
    "VERCEL_*",
    "NETLIFY_*",
    "FLY_*",
    "B2_*",
    "R2_*",
    "S3_*",
    "MINIO_*",
    "MC_HOST_*",
    "RCLONE_*",
    "VAULT_*",
    "CONSUL_*",
    "NOMAD_*",
    "TF_VAR_*",
    "TF_TOKEN_*",
    "PULUMI_*",
    "KUBECONFIG",
    "KUBE_*",
    "KUBERNETES_*",
    "DOCKER_*",
    "REGISTRY_AUTH*",
    "MODAL_*",
    # forges and package registries
    "GITHUB_*",
    "GH_*",
    "GITLAB_*",
    "CI_JOB_*",
    "CI_REGISTRY_*",
    "CI_DEPLOY_*",
    "BITBUCKET_*",
    "GITEA_*",
    "FORGEJO_*",
    "CODEBERG_*",
    "NPM_*",
    "NODE_AUTH*",
    "YARN_*",
    "PYPI_*",
    "TWINE_*",
    "FLIT_*",
    "POETRY_HTTP_BASIC_*",
    "POETRY_PYPI_*",
    "UV_PUBLISH_*",
    "UV_INDEX_*",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "CARGO_REGISTR*",
    "CONDA_TOKEN",
    "ANACONDA_*",
    "CODECOV_*",
    "CIRCLE_*",
    "BUILDKITE_*",
    "JENKINS_*",
    "SONAR_*",
    # models and their services
    "OPENAI_*",
    "ANTHROPIC_*",
    "CLAUDE_*",
    "GEMINI_*",
    "MISTRAL_*",
    "COHERE_*",
    "CO_API*",
    "GROQ_*",
    "TOGETHER_*",
    "FIREWORKS_*",
    "DEEPSEEK_*",
    "PERPLEXITY_*",
    "XAI_*",
    "OPENROUTER_*",
    "REPLICATE_*",
    "HF_*",
    "HUGGINGFACE*",
    "HUGGING_FACE_*",
    "LANGCHAIN_*",
    "LANGSMITH_*",
    "LANGFUSE_*",
    "PINECONE_*",
    "WEAVIATE_*",
    "QDRANT_*",
    "TAVILY_*",
    "SERPAPI_*",
    "WANDB_*",
    "COMET_*",
    "NEPTUNE_*",
    "MLFLOW_*",
    "CLEARML_*",
    "KAGGLE_*",
    "DATABRICKS_*",
    "SNOWFLAKE_*",
    "SNOWSQL_*",
    "DBT_*",
    # databases and queues
    "PG*",  # PGPASSWORD, PGPASSFILE, PGSERVICEFILE, PGHOST …
    "POSTGRES*",
    "MYSQL_*",
    "MARIADB_*",
    "MONGO*",
    "REDIS*",
    "DATABASE_*",
    "DB_*",
    "SQLALCHEMY_*",
    "MSSQL_*",
    "ORACLE_*",
    "CLICKHOUSE_*",
    "ELASTIC*",
    "INFLUX*",
    "NEO4J_*",
    "AMQP_*",
    "RABBITMQ_*",
    "CELERY_*",
    "KAFKA_*",
    # messages, payment, telemetry
    "SLACK_*",
    "DISCORD_*",
    "TELEGRAM_*",
    "TWILIO_*",
    "SENDGRID_*",
    "MAILGUN_*",
    "SMTP_*",
    "STRIPE_*",
    "SENTRY_*",
    "DD_*",
    "DATADOG_*",
    "NEW_RELIC_*",
    "HONEYCOMB_*",
    # Jupyter: connection keys, hub tokens
    "JPY_*",
    "JUPYTER*",
    "COLAB_*",
    # identity, agents and sessions of the person
    "GIT_*",
    "EMAIL",
    "SSH_*",
    "GPG_*",
    "GNUPGHOME",
    "KRB5*",
    "SUDO_*",
    "DBUS_*",
    "XAUTHORITY",
    "DISPLAY",
    "WAYLAND_*",
    "ICEAUTHORITY",
    "NETRC",
    "ANSIBLE_*",
    "BW_SESSION",
    "OP_SESSION*",
    "OP_SERVICE*",
    "OP_CONNECT*",
    "KEYRING_*",
)

# Names the dynamic linker, the interpreter or a shell obeys: passing one hands control over, not data.
DANGEROUS_NAMES: tuple[str, ...] = (
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "RES_OPTIONS",
    "PYTHON*",
    "IPYTHON*",
    "BASH_*",
    "ENV",
    "IFS",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "NODE_*",
    "PERL*",
    "RUBY*",
    "R_*",
    "JULIA_*",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "MPLBACKEND",
    "IPYSANDBOX_*",
)

# What the sandbox sets itself.
OWN_NAMES: tuple[str, ...] = (
    *("PATH", "HOME", "PWD", "OLDPWD", "SHELL", "USER", "LOGNAME", "SHLVL", "_"),
    *("TMPDIR", "TMP", "TEMP", "TEMPDIR", "XDG_*", "MPLCONFIGDIR", "DATA_SOURCE_PATH"),
)

# Formats that their issuers document, with the boundary that keeps them out of longer words.
_FORMATS: tuple[str, ...] = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{5,}",  # AWS key ids
    r"gh[pousr]_[A-Za-z0-9]{10,}",
    r"github_pat_[A-Za-z0-9_]{10,}",
    r"gl(?:pat|dt|rt|ptt|ft|soat|cbt|agent)-[A-Za-z0-9_-]{10,}",
    r"(?:sk|pk|rk)[-_](?:ant|proj|live|test|or|svcacct|admin|lf)?[-_]?[A-Za-z0-9_-]{10,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{8,}",
    r"xapp-[A-Za-z0-9-]{8,}",
    r"hf_[A-Za-z0-9]{10,}",
    r"AIza[0-9A-Za-z_-]{20,}",
    r"ya29\.[0-9A-Za-z_-]{10,}",
    r"GOCSPX-[0-9A-Za-z_-]{10,}",
    r"pypi-[A-Za-z0-9_-]{16,}",
    r"npm_[A-Za-z0-9]{20,}",
    r"dop_v1_[a-f0-9]{20,}",
    r"dapi[a-f0-9]{20,}",
    r"hv[sbr]\.[A-Za-z0-9_-]{10,}",
    r"r8_[A-Za-z0-9]{20,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"xai-[A-Za-z0-9]{20,}",
    r"SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{20,}",  # Square
    r"(?:AC|SK)[a-f0-9]{32}",  # Twilio
    r"[0-9a-f]{32}-us[0-9]{1,2}",  # Mailchimp
    r"AKC[A-Za-z0-9]{10,}",  # Artifactory
    r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",  # Discord
    r"[0-9]{8,10}:[A-Za-z0-9_-]{35}",  # Telegram
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.",  # JSON web tokens
)
KNOWN_FORMAT = re.compile("(?<![A-Za-z0-9])(?:" + "|".join(_FORMATS) + ")")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File|AGE-SECRET-KEY-1")
_URL_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s?#]*@")
ASSIGNED = re.compile(
    r"(?i)(?:password|passwd|pwd|secret|token|api_?key|accountkey|sharedaccesskey)\s*[=:]\s*([^\s;&]{3,})"
)
AUTHORIZATION = re.compile(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/=._~-]{12,})")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SEPARATORS = re.compile(r"[\s,;:=\"'&?@()<>|]+")
# A value of this length is a document, not a setting; whatever is in it can't be judged.
MAX_VALUE = 32_768


def _names(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


_CREDENTIAL, _DANGEROUS, _OWN = _names(CREDENTIAL_NAMES), _names(DANGEROUS_NAMES), _names(OWN_NAMES)
# Caught by the patterns above, but switches, no secrets.
_HARMLESS = frozenset({"HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"})


def why_refused(name: str, value: str) -> str | None:
    """Why this variable is never passed to a sandbox, in words that don't show the value; None if it may be."""
    upper = name.upper()
    if _OWN.match(upper):
        return "the sandbox sets it itself"
    if _DANGEROUS.match(upper):
        return "it tells the linker, the interpreter or the shell what to load"
    if _CREDENTIAL.match(upper) and upper not in _HARMLESS:
        return "its name is one that credentials have"
    return secret_format(value)


def looks_like_credential(name: str, value: str) -> bool:
    """Is the variable a credential, by its name or by its value?"""
    upper = name.upper()
    return (_CREDENTIAL.match(upper) is not None and upper not in _HARMLESS) or secret_format(value) is not None


def secret_format(value: str) -> str | None:
    """What kind of secret the value looks like; None if it looks like none."""
    if len(value) > MAX_VALUE:
        return f"its value is longer than {MAX_VALUE} characters"
    if _PRIVATE_KEY.search(value):
        return "its value holds a private key"
    if KNOWN_FORMAT.search(value):
        return "its value has the format of an access token"
    if _URL_WITH_PASSWORD.search(value):
        return "its value is an address with a user or password in it"
    if ASSIGNED.search(value) or AUTHORIZATION.search(value):
        return "its value holds a password or token"
    if any(is_random(word) for word in _SEPARATORS.split(value)):
        return "its value looks like a random key"
    return None


def is_random(word: str) -> bool:
    """Whether the word, or a part of it between slashes, looks drawn at random."""
    # Identifiers of this form name GPUs, runs and data sets far more often than they open anything.
    if _UUID.fullmatch(word):
        return False
    # The parts of a path are judged one by one; base64 has "/" too but doesn't begin with it.
    if "/" in word:
        if any(is_random(part) for part in word.split("/")):
            return True
        if word[0] in "/.~":
            return False
    return _is_random_hex(word) or _is_random_text(word)


def _is_random_hex(word: str) -> bool:
    bare = word.removeprefix("0x")
    return len(bare) >= 32 and re.fullmatch(r"[0-9a-fA-F]+", bare) is not None and len(set(bare)) >= 10


def _is_random_text(word: str) -> bool:
    """Letters and digits in no order: many characters, and the kind of character changes at almost every step.

    A name people chose ("My-Experiment-2024-Run-17") changes kind at the seams only. For random base62 the share of
    changes is 0.62, for base36 0.40; the bounds lie between.
    """
    kinds = [0 if c.islower() else 1 if c.isupper() else 2 for c in word if c.isascii() and c.isalnum()]
    if len(kinds) < 20 or not re.fullmatch(r"[A-Za-z0-9+/_=.~-]+", word) or 2 not in kinds:
        return False
    changes = sum(a != b for a, b in itertools.pairwise(kinds)) / (len(kinds) - 1)
    needed = 0.42 if len(set(kinds)) == 3 else 0.28
    return changes >= needed and _entropy(word) >= 3.3


def _entropy(word: str) -> float:
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


@dataclass(frozen=True, slots=True)
class HostVariables:
    """The host's variables, sorted by what becomes of them. ``passed`` holds values; the rest are names only."""

    passed: Mapping[str, str]
    withheld: tuple[str, ...]
    dropped: tuple[str, ...]
    unset: tuple[str, ...]
    refused: Mapping[str, str]


def sort_variables(environ: Mapping[str, str], allow: Iterable[str]) -> HostVariables:
    """Which variables a sandbox gets. ``refused`` tells why an allowed name isn't passed all the same."""
    wanted = tuple(dict.fromkeys(allow))
    # A name is refused whether the variable is set or not: the answer must not depend on the day.
    refused = {n: why for n in wanted if (why := why_refused(n, environ.get(n, ""))) is not None}
    passed = {name: environ[name] for name in wanted if name in environ and name not in refused}
    rest = sorted(name for name in environ if name not in passed)
    withheld = tuple(name for name in rest if looks_like_credential(name, environ[name]))
    return HostVariables(
        passed=passed,
        withheld=withheld,
        dropped=tuple(name for name in rest if name not in set(withheld)),
        unset=tuple(name for name in wanted if name not in environ and name not in refused),
        refused=refused,
    )
