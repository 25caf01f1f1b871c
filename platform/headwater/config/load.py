"""Where a setting comes from: flags, the environment, the current folder's conf/, the shipped conf/."""

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from headwater.config.settings import ClientSettings, Settings
from headwater.config.shipped import shipped_dir
from headwater.errors import UsageError, reason

_ENVIRONMENT_PREFIX = "HEADWATER_"
_SECRET_NAME = re.compile(
    r"password|secret|token|credential|private|webhook|\.key(\.pem)?$|jaas", re.IGNORECASE
)
_NO_SECRET = re.compile(r"[._](url|location|type|class)$", re.IGNORECASE)
_HIDDEN = "********"
_SHIPPED = "the shipped conf/headwater.toml"


@dataclass(frozen=True)
class Value:
    """One setting as `headwater config show` prints it.

    Attributes:
        key: Its full name, such as `stack.port`.
        value: Its value; of a secret only that it is set.
        source: The file and line, the environment variable or the flag that it came from.
    """

    key: str
    value: object
    source: str


@dataclass(frozen=True)
class LoadedSettings:
    """The settings together with where each came from."""

    settings: Settings
    sources: Mapping[str, str]

    def is_chosen(self, key: str) -> bool:
        """Whether somebody gave a setting, rather than leaving it at what is shipped."""
        return not self.sources.get(key, _SHIPPED).startswith(_SHIPPED)

    def name_of(self, key: str) -> str:
        """What to call a setting by where it was given: its flag, or its key and place."""
        source = self.sources.get(key, "default")
        return source if source.startswith("--") else f"{key} ({source})"

    def values(self) -> list[Value]:
        """Every setting in the order of conf/headwater.toml, with secrets hidden."""
        return [
            Value(key, _masked(key, value), self.sources.get(key, "default"))
            for key, value in _flatten(self.settings)
        ]


def load_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> LoadedSettings:
    """Read the settings: defaults, then files, then the environment, then flags; the last one wins.

    Args:
        environ: The environment, with HEADWATER_CONFIG and HEADWATER_<SECTION>_<KEY>.
        flags: Values from the command line by full key (`stack.port`); None stands for a flag that is not set.

    Raises:
        UsageError: For an unknown key, a value of the wrong kind, or a file that cannot be read.
    """
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for path, label in _files(environ):
        for key, value, line in _read_file(path, label):
            values[key], sources[key] = value, f"{label} line {line}"
    clusters = [key.split(".")[1] for key in values if key.startswith(f"{_CLUSTER}.")]
    for key, value, name in _read_environment(environ, clusters):
        values[key], sources[key] = value, name
    for key, value in (flags or {}).items():
        if value is not None:
            values[key], sources[key] = value, _flag_of(key)
    try:
        settings = Settings.model_validate(_nested(values))
    except ValidationError as error:
        raise UsageError(_explain(error, sources)) from error
    return LoadedSettings(settings, sources)


def known_keys() -> list[str]:
    """Every key of conf/headwater.toml; a table of free names, such as `broker`, stands for itself."""
    return list(_keys(Settings))


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _keys(section, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


# Tables whose keys are not ours: Kafka's properties of brokers and of clients, Spark's settings.
_FREE_TABLES = ("broker", "spark.conf", "client.kafka")
_CLUSTER = "cluster"
"""The section of further clusters: each of its tables is as `client`."""


def _free_table_of(key: str) -> str | None:
    """The table of free names that a key is in, or is."""
    parts = key.split(".")
    if parts[0] == _CLUSTER and parts[2:3] == ["kafka"]:
        return ".".join(parts[:3])
    return next((free for free in _FREE_TABLES if f"{key}.".startswith(f"{free}.")), None)


def _pattern_of(key: str) -> str:
    """A key of a named cluster as the one of `client` that it is like; any other as it is."""
    parts = key.split(".", maxsplit=2)
    return f"client.{parts[2]}" if parts[0] == _CLUSTER and len(parts) > 2 else key


def _files(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The files to read, the winning one last, each with the label that messages use for it."""
    yield shipped_dir("conf") / "headwater.toml", _SHIPPED
    named = environ.get("HEADWATER_CONFIG")
    if named:
        yield Path(named).expanduser(), named
        return
    for path in sorted(Path("conf").glob("headwater*.toml"), key=lambda path: path.stem):
        if path.resolve() != (shipped_dir("conf") / "headwater.toml").resolve():
            yield path, str(path)


def _read_file(path: Path, label: str) -> Iterator[tuple[str, object, int]]:
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {label}: {reason(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{label} is not TOML: {error}") from error
    for key, value in _leaves(table):
        line = _line_of(text, key)
        _check_known(key, f"{label} line {line}")
        if value and _is_of_clients(key) and _is_secret(key) and is_open(path):
            raise UsageError(
                f"{label} line {line}: {key} is a secret, and others than the owner may read the file: chmod 600 "
                f"{label} (of a mounted secret: defaultMode 0440), or give it by the environment, "
                f"{variable_of(key).replace('-', '_')}"
            )
        yield key, value, line


def _is_secret(key: str) -> bool:
    return bool(_SECRET_NAME.search(key)) and not _NO_SECRET.search(key)


def _is_of_clients(key: str) -> bool:
    return key.partition(".")[0] in ("client", _CLUSTER)


def is_open(path: Path) -> bool:
    """Whether others may read a file than who it is for: its owner, or the group of a file of root's. A secret that is
    mounted in a container is such a file (Kubernetes: `fsGroup`); libpq has the same rule for keys."""
    if os.name != "posix":
        return False
    found = path.stat()
    others = stat.S_IRWXO if found.st_uid == 0 else stat.S_IRWXG | stat.S_IRWXO
    return bool(found.st_mode & (others | stat.S_IWGRP))


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if not isinstance(value, dict):
            yield key, value
        elif _free_table_of(key) == key:
            yield from ((f"{key}.{each}", inner) for each, inner in _free_leaves(value))
        else:
            # An empty or unknown table is yielded, too, or a mistake in its name would go unnoticed.
            pattern = _pattern_of(key)
            is_cluster = prefix == f"{_CLUSTER}." and value
            if not is_cluster and not any(f"{each}.".startswith(f"{pattern}.") for each in known_keys()):
                yield key, value
            yield from _leaves(value, f"{key}.")


def _free_leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """A free table's entries, their keys quoted ("num.partitions" = 1) or bare (num.partitions = 1)."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _free_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


# Spark's settings have capitals, which a variable's name cannot tell.
_FREE_VARIABLES = ("broker", "client.kafka")
_KAFKA = "KAFKA_"


def _dotted(text: str) -> str:
    return text.lower().replace("_", ".")


def _key_of_cluster(variable: str, text: str, clusters: Iterable[str]) -> str:
    """The key that a variable of a named cluster gives, `PAYMENTS_SASL_PASSWORD` or `PAYMENTS_KAFKA_CLIENT_ID`.

    Args:
        variable: The variable.
        text: Its name without the prefix.
        clusters: The clusters that the files name: a variable cannot tell `eu-west` from `eu_west`.
    """
    keys = {key.upper(): key for key in ClientSettings.model_fields if key != "kafka"}
    declared = {each.upper().replace("-", "_"): each for each in clusters}
    for name in sorted(declared, key=len, reverse=True):  # first, as a cluster's name may have "kafka" in it
        key = text.removeprefix(f"{name}_")
        if key != text and (key in keys or key.startswith(_KAFKA)):
            return f"{_CLUSTER}.{declared[name]}.{keys.get(key) or _property(key)}"
    name, free, key = text.partition(f"_{_KAFKA}")
    if free:
        return f"{_CLUSTER}.{name.lower()}.{_property(_KAFKA + key)}"
    ending = next((each for each in sorted(keys, key=len, reverse=True) if text.endswith(f"_{each}")), None)
    if ending is None:
        raise UsageError(
            f"the environment variable {variable} names no setting: it is "
            f"{_ENVIRONMENT_PREFIX}{_CLUSTER.upper()}_NAME_KEY, with a key of [client]; see headwater config show"
        )
    return f"{_CLUSTER}.{text.removesuffix(f'_{ending}').lower()}.{keys[ending]}"


def _property(text: str) -> str:
    """The key of a client property that the end of a variable names, `KAFKA_CLIENT_ID`."""
    return f"kafka.{_dotted(text.removeprefix(_KAFKA))}"


def _read_environment(
    environ: Mapping[str, str], clusters: Iterable[str]
) -> Iterator[tuple[str, object, str]]:
    no_variable = (*_FREE_TABLES, _CLUSTER)
    by_variable = {variable_of(key): key for key in known_keys() if key not in no_variable}
    sections = tuple(f"{_ENVIRONMENT_PREFIX}{name.upper()}_" for name in Settings.model_fields)
    of_clusters = f"{_ENVIRONMENT_PREFIX}{_CLUSTER.upper()}_"
    for name, value in sorted(environ.items()):
        free = next((free for free in _FREE_VARIABLES if name.startswith(variable_of(free) + "_")), None)
        if free is not None:
            yield f"{free}.{_dotted(name.removeprefix(variable_of(free) + '_'))}", value, name
        elif name.startswith(of_clusters):
            yield _key_of_cluster(name, name.removeprefix(of_clusters), clusters), value, name
        elif name in by_variable:
            yield by_variable[name], value, name
        elif name.startswith(sections):
            near = get_close_matches(name, by_variable, n=1)
            hint = f"did you mean {near[0]}?" if near else "see headwater config show"
            raise UsageError(f"the environment variable {name} names no setting: {hint}")


def variable_of(key: str) -> str:
    """The environment variable that gives a setting."""
    return _ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def _check_known(key: str, where: str) -> None:
    keys = known_keys()
    if _pattern_of(key) in keys and key != _CLUSTER:
        return
    if (_free_table_of(key) or key) != key:
        return
    pattern = _pattern_of(key)
    if pattern == key and f"{key}.".startswith(f"{_CLUSTER}."):
        raise UsageError(f"{where}: {key} is no cluster: a section [cluster.NAME] has keys of [client]")
    sections = [f"[{section}]" for section in Settings.model_fields]
    near = [each for each in keys if each.rpartition(".")[2] == pattern.rpartition(".")[2]]
    near = near or get_close_matches(pattern, keys, n=1) or get_close_matches(f"[{key}]", sections, n=1)
    if pattern != key:  # of a named cluster
        near = [
            key.removesuffix(pattern.removeprefix("client.")) + each.removeprefix("client.") for each in near
        ]
    hint = f"did you mean {near[0]}?" if near else f"the sections are {', '.join(sections)}"
    raise UsageError(f"{where}: there is no setting {key}: {hint}")


def _line_of(text: str, key: str) -> int:
    """The line that sets a key, by a plain reading of headers and assignments; else its section's, or 1."""
    section = ""
    header_line = 1
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        header = re.match(r"\[([^\[\]]+)\]", stripped)
        if header:
            section = header.group(1).strip()
            if section == key:
                header_line = number
            continue
        assignment = re.match(r"""(["']?)([\w.\-]+)\1\s*=""", stripped)
        if assignment and f"{section}.{assignment.group(2)}".lstrip(".") == key:
            return number
    return header_line


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        free = _free_table_of(key)
        path = [*free.split("."), key.removeprefix(f"{free}.")] if free not in (None, key) else key.split(".")
        table = nested
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = value
    return nested


def _explain(error: ValidationError, sources: Mapping[str, str]) -> str:
    first = error.errors()[0]
    if first["loc"][0] == _CLUSTER and first["loc"][-1] == "[key]":
        return (
            f"[{_CLUSTER}.{first['input']}]: a cluster's name has small letters, digits, '_' and '-', and begins with "
            "a letter"
        )
    key = ".".join(str(part) for part in first["loc"])
    value = "" if _is_secret(key) else f" is {first['input']!r}"
    reason = first["msg"][:1].lower() + first["msg"][1:]
    return f"{sources.get(key, 'the settings')}: {key}{value}: {reason}"


def _flag_of(key: str) -> str:
    return "--" + key.rpartition(".")[2].replace("_", "-")


def _flatten(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for each, inner in value.items():
                if isinstance(inner, BaseModel):
                    yield from _flatten(inner, f"{prefix}{name}.{each}.")
                else:
                    yield f"{prefix}{name}.{each}", inner
        else:
            yield f"{prefix}{name}", value


def _masked(key: str, value: object) -> object:
    if hasattr(value, "get_secret_value"):
        return _HIDDEN if value.get_secret_value() else ""
    return _HIDDEN if _is_secret(key) and value else value
