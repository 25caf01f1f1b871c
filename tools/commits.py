"""Checks that subjects of commits are `area: what`, within 72 characters.

python tools/commits.py                  # since the last tag; without a tag, since this check was added
python tools/commits.py --message FILE   # what git is about to commit, for a hook
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 72
_SUBJECT = re.compile(r"[A-Za-z0-9][\w.-]*(?: [\w.-]+)?: \S")


def problem_of(subject: str) -> str | None:
    """What is wrong with a subject; None for a good one.

    Example:
        >>> problem_of("docs: a page tells how to ship log files")
        >>> problem_of("Fixed the docs")
        'it is not `area: what`'
    """
    if not _SUBJECT.match(subject):
        return "it is not `area: what`"
    if len(subject) > LONGEST:
        return f"it has {len(subject)} characters, and {LONGEST} are shown"
    if subject.endswith("."):
        return "a subject ends without a full stop"
    return None


def subjects_since_release(repository: Path) -> list[tuple[str, str]]:
    """The commits that no release has yet, the newest first, each with its subject; merges are left out."""
    tag = _git(repository, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    since = (
        tag
        or _git(repository, "log", "--diff-filter=A", "--format=%H", "--", "tools/commits.py").split("\n")[-1]
    )
    lines = _git(repository, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD" if since else "HEAD")
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in lines.splitlines())]


def _git(repository: Path, *arguments: str) -> str:
    """What git prints; empty if it fails, for example without a tag."""
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _wrong(subjects: Iterable[tuple[str, str]]) -> list[str]:
    checked = ((commit, subject, problem_of(subject)) for commit, subject in subjects)
    return [f"{commit} {subject}: {problem}" for commit, subject, problem in checked if problem]


def main(arguments: Sequence[str]) -> int:
    """Prints what is wrong; the status is 1 if anything is."""
    if arguments[:1] == ["--message"]:
        text = Path(arguments[1]).read_text(encoding="utf-8")
        subjects = [("this commit:", (text.splitlines() or [""])[0])]
    else:
        subjects = subjects_since_release(ROOT)
    wrong = _wrong(subjects)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
