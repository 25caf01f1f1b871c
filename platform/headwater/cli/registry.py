"""`headwater registry`: serve a schema registry, and ask one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
)
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater.registry.client import RegistryClient, login_of
from headwater.registry.files import read_schema

if TYPE_CHECKING:
    from headwater.registry.guard import Guard

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The registry to ask; by default the setting registry.url, or that of the running stack of --home.",
    ),
]
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="As clicks-value: a topic's values.")]
VersionOption = Annotated[str, typer.Option("--version", metavar="N", help="A version's number, or latest.")]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="avro, json or protobuf; by default by the file's ending (.avsc, .json, .proto).",
    ),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses, by the name that it has in it; may be repeated.",
    ),
]
PermanentOption = Annotated[
    bool, typer.Option("--permanent", help="For good; only what is deleted already without this.")
]


@app.callback()
def _registry() -> None:
    """Serve a schema registry, and register, check and show schemas.

    \b
    Examples:
      headwater registry serve
      headwater registry register clicks-value click.avsc
      headwater registry subjects
    """


@app.command()
def serve(
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8081,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Where the schemas are kept; made if there is none.")
    ] = "_schemas",
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="FILE", help="Speak TLS with this certificate, of PEM."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key",
            metavar="FILE",
            help="Its key, of PEM; by default in the same file as the certificate.",
        ),
    ] = None,
    login: Annotated[
        bool,
        typer.Option("--login", help="Ask clients for the settings registry.username and registry.password."),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Serve a schema registry until it is stopped.

    It speaks the REST interface of Confluent's registry, and keeps its schemas
    in a compacted topic in the format of that one. Several may serve one
    topic. Without --login, whoever reaches its address may register and
    delete schemas.

    \b
    Examples:
      headwater registry serve
      headwater registry serve --bootstrap kafka:9092 --port 8085
      headwater registry serve --login --tls-certificate r.crt --tls-key r.key
    """
    from headwater.registry.serving import running_registry
    from headwater.running.cluster import Cluster
    from headwater.running.signals import stop_requested

    cluster = Cluster(home, bootstrap)
    with (
        stop_requested() as stopping,
        running_registry(
            {**cluster.client_properties(), "client.id": "headwater-registry"},
            host=host,
            port=port,
            topic=topic,
            timeout_s=cluster.timeout_s,
            guard=_guard(certificate, key, login),
        ) as url,
    ):
        if json_output:
            print_json({"ready": url})
        else:
            print_line(f"ready {url}", flush=True)
        stopping.wait()


@app.command()
def subjects(
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that are deleted softly, too.")] = False,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """List the subjects, with their newest version.

    \b
    Example:
      headwater registry subjects
    """
    client = _client(url, home)
    rows = []
    for name in client.ask("GET", "subjects", deleted=deleted):
        numbers = client.ask("GET", "subjects", name, "versions", deleted=deleted)
        newest = client.ask("GET", "subjects", name, "versions", str(numbers[-1]), deleted=deleted)
        rows.append(
            {
                "subject": name,
                "version": newest["version"],
                "id": newest["id"],
                "type": newest.get("schemaType", "AVRO"),
                "compatibility": client.ask("GET", "config", name, defaultToGlobal=True)[
                    "compatibilityLevel"
                ],
            }
        )
    if json_output:
        print_json(rows)
        return
    header = ("subject", "version", "id", "type", "compatibility")
    print_table(header, [tuple(row.values()) for row in rows], empty="no subjects")


@app.command()
def show(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT|ID", help="A subject, or the id of a schema.")],
    version: VersionOption = "latest",
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Print a schema.

    \b
    Examples:
      headwater registry show clicks-value
      headwater registry show clicks-value --version 1
      headwater registry show 17
    """
    client = _client(url, home)
    if subject.isascii() and subject.isdigit():
        schema = client.ask("GET", "schemas", "ids", subject)
    else:
        schema = client.ask("GET", "subjects", subject, "versions", version)
    if json_output:
        print_json(schema)
    else:
        print_line(schema["schema"])


@app.command()
def versions(
    subject: SubjectArgument,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """List the versions of a subject with their ids.

    \b
    Example:
      headwater registry versions clicks-value
    """
    client = _client(url, home)
    every = [
        client.ask("GET", "subjects", subject, "versions", str(number))
        for number in client.ask("GET", "subjects", subject, "versions")
    ]
    if json_output:
        print_json(every)
    else:
        print_table(("version", "id"), [(each["version"], each["id"]) for each in every], empty="no versions")


@app.command()
def register(
    subject: SubjectArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The schema; - reads standard input.")],
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Register a schema as the next version of a subject.

    One that the subject has already keeps its version.

    Exit status: 1 if it is not compatible.

    \b
    Examples:
      headwater registry register clicks-value click.avsc
      headwater registry register orders-value order.proto --reference money.proto=money:1
    """
    client = _client(url, home)
    answer = client.ask("POST", "subjects", subject, "versions", body=_schema_body(file, type_, reference))
    version = answer.get("version")
    if json_output:
        print_json({"subject": subject, "id": answer["id"], "version": version})
    else:
        numbered = f"version {version} of {subject}" if version else subject
        print_line(f"registered as {numbered}, id {answer['id']}")


@app.command()
def check(
    subject: SubjectArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The schema; - reads standard input.")],
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            metavar="N",
            help="Compare with this version only; by default as the subject's level asks.",
        ),
    ] = None,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Say whether a schema could become the next version, and register nothing.

    Exit status: 0 if it could, 1 if not.

    \b
    Example:
      headwater registry check clicks-value click.avsc
    """
    client = _client(url, home)
    path = ["compatibility", "subjects", subject, "versions", *([version] if version else [])]
    answer = client.ask("POST", *path, body=_schema_body(file, type_, reference), verbose=True)
    reasons = answer.get("messages") or []
    if json_output:
        print_json({"compatible": answer["is_compatible"], "reasons": reasons})
    elif answer["is_compatible"]:
        print_line(f"compatible with {subject}")
    else:
        for each in reasons or [f"not compatible with {subject}"]:
            print_line(each)
    if not answer["is_compatible"]:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def delete(
    subject: SubjectArgument,
    version: Annotated[
        str | None, typer.Option("--version", metavar="N", help="This version only; by default all.")
    ] = None,
    permanent: PermanentOption = False,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Delete a subject or one of its versions.

    Consumers still get what is deleted by its id, unless it is deleted with
    --permanent as well: then values of it cannot be read any more.

    \b
    Examples:
      headwater registry delete clicks-value
      headwater registry delete clicks-value --permanent
    """
    client = _client(url, home)
    path = ["subjects", subject, *(["versions", version] if version else [])]
    answer = client.ask("DELETE", *path, permanent=permanent)
    numbers = answer if isinstance(answer, list) else [answer]
    if json_output:
        print_json({"subject": subject, "deleted": numbers, "permanent": permanent})
    else:
        print_line(
            f"deleted version {', '.join(map(str, numbers))} of {subject}{' for good' if permanent else ''}"
        )


@app.command()
def config(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="By default what holds for all subjects.")
    ] = None,
    compatibility: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Set it: none, backward, forward or full, each but none also with _transitive; default takes a "
            "subject's own back.",
        ),
    ] = None,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Show or set which changes of a schema are allowed.

    \b
    Examples:
      headwater registry config
      headwater registry config clicks-value --compatibility full_transitive
    """
    client = _client(url, home)
    path = ["config", *([subject] if subject is not None else [])]
    if compatibility is not None and compatibility.lower() == "default":
        client.ask("DELETE", *path)
    elif compatibility is not None:
        client.ask("PUT", *path, body={"compatibility": compatibility.upper()})
    answer = client.ask("GET", *path, defaultToGlobal=True)
    if json_output:
        print_json(answer)
    else:
        print_line(f"{subject or 'all subjects'}: compatibility {answer['compatibilityLevel']}")


@app.command()
def mode(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="By default what holds for all subjects.")
    ] = None,
    set_to: Annotated[
        str | None,
        typer.Option("--set", metavar="MODE", help="readwrite, readonly, readonly_override or import."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Set import although there are schemas whose ids may clash.")
    ] = False,
    url: UrlOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Show or set whether schemas can be registered.

    In mode import they keep the ids that they have in another registry.

    \b
    Examples:
      headwater registry mode
      headwater registry mode clicks-value --set readonly
    """
    client = _client(url, home)
    path = ["mode", *([subject] if subject is not None else [])]
    if set_to is not None:
        client.ask("PUT", *path, body={"mode": set_to.upper()}, force=force)
    answer = client.ask("GET", *path, defaultToGlobal=True)
    if json_output:
        print_json(answer)
    else:
        print_line(f"{subject or 'all subjects'}: mode {answer['mode']}")


def _guard(certificate: Path | None, key: Path | None, login: bool) -> "Guard":
    from headwater.config import load_settings
    from headwater.registry.guard import Guard

    if key is not None and certificate is None:
        raise UsageError("--tls-key needs --tls-certificate")
    if not login:
        return Guard(certificate=certificate, key=key)
    known = load_settings(os.environ).settings.registry
    username, password = known.username, known.password.get_secret_value()
    if not (username and password):
        raise UsageError(
            "--login needs the settings registry.username and registry.password: set HEADWATER_REGISTRY_USERNAME and "
            "HEADWATER_REGISTRY_PASSWORD"
        )
    return Guard(username=username, password=password, certificate=certificate, key=key)


def _client(url: str | None, home: Path) -> RegistryClient:
    from headwater.config import load_settings
    from headwater.stack.local import known_registry

    settings = load_settings(os.environ).settings
    known = settings.registry.url or known_registry(home)
    address = url or known
    if not address:
        raise UserError(
            f"no registry runs in the stack over {home}: start one with headwater up --registry, or give --url URL"
        )
    login = login_of(settings.registry) if address == known else None
    return RegistryClient(address, settings.client.timeout_s, login)


def _schema_body(file: Path, type_: str | None, references: list[str] | None) -> dict[str, Any]:
    return {**read_schema(file, type_), "references": [_reference(each) for each in references or ()]}


def _reference(text: str) -> dict[str, Any]:
    name, _, place = text.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not (name and subject and version.isascii() and version.isdigit()):
        raise UsageError(f"--reference {text} is not of the form NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}
