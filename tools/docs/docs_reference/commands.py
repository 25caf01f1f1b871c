"""The pages of the verbs, from what their `--help` shows."""

from collections.abc import Iterator, Mapping
from typing import Any

from docs_reference.markdown import code, plain, table
from headwater.cli.verbs import VERBS, installed_verbs, load_verb, root_command

_ROOT = "headwater"


def pages() -> Mapping[str, str]:
    """The Markdown of each verb's page and of the list of them."""
    return {"index.md": _index(), **{f"{verb}.md": _verb(verb) for verb in installed_verbs()}}


def commands_of(verb: str) -> Mapping[str, Any]:
    """A verb's command and all below it, by what is typed."""
    return dict(_with_children(f"{_ROOT} {verb}", load_verb(verb)))


def _with_children(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _with_children(f"{path} {name}", child)


def _index() -> str:
    root = root_command()
    parts = ["# Commands", "", _usage(_ROOT, root), _help(root.help), "", _parameters(_ROOT, root)]
    panels: dict[str, list[str]] = {}
    for verb in installed_verbs():
        panels.setdefault(VERBS[verb].panel, []).append(verb)
    for panel, verbs in panels.items():
        rows = [(f"[`{_ROOT} {verb}`]({verb}.md)", plain(VERBS[verb].summary)) for verb in verbs]
        parts += [f"## {panel}", "", table(("Verb", "What it does"), rows)]
    parts += [
        "Each verb shows the same with `--help`. What its exit status means: [exit codes](../exit-codes.md).",
        "",
    ]
    return "\n".join(parts)


def _verb(verb: str) -> str:
    parts = []
    for path, command in commands_of(verb).items():
        heading = "#" if path == f"{_ROOT} {verb}" else "##"
        parts += [
            f"{heading} {path}",
            "",
            _usage(path, command),
            _help(command.help),
            "",
            _parameters(path, command),
        ]
    return "\n".join(parts)


def _help(text: str | None) -> str:
    """A help text as Markdown; the paragraph behind a backspace has lines of its own: an example."""
    parts = []
    for paragraph in (text or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            parts.append(plain(" ".join(paragraph.split())))
            continue
        title, *lines = paragraph.removeprefix("\b").strip("\n").splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
        parts.append("\n".join([title, "", "```text", *(line[indent:] for line in lines), "```"]))
    return "\n\n".join(parts)


def _usage(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    return "\n".join(["```text", " ".join([path, *command.collect_usage_pieces(context)]), "```", ""])


def _parameters(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if not getattr(parameter, "hidden", False) and "completion" not in parameter.name
    ]
    rows = [(code(names), plain(what)) for names, what in records]
    return table(("Argument or option", "What it is"), rows) if rows else ""
