r"""The syslog of RFC 3164, which describes existing practice: the forms that are in use.

    <34>Oct 11 22:14:15 host su[230]: 'su root' failed
    Oct 11 22:14:15 host kernel: text                                a file's, which has no priority
    <30>Oct 11 22:14:15 systemd[1]: text                             a program's to its own machine
    <34>2026-10-11T22:14:15.5+02:00 host su: text                    with an ISO 8601 time
    2026-10-11 22:14:15 host su: text
    <34>Oct 11 2026 22:14:15 CEST host su: text                      with a year, a zone
    <189>29: sw01: 30: *Mar  1 18:48:50.483 UTC: %SYS-5-CONFIG_I: text    Cisco's, with and without counters and a name
    Oct 11 22:14:15 192.0.2.1 29: Mar  1 18:48:50: %SYS-5-CONFIG_I: text  a relay's, of Cisco's
    <12>su: text                                                     without a time

A zone is an offset, `Z`, or a name that means one offset in most logs. A line with another short name in capitals in
its place, before its host and its program, does not parse: its moment is not known (`IST` is three zones).

A word that does not end like a host's name begins the message, as in rsyslog. The program is a word with a colon or a
process's number behind it; a word with quotes, "=" and the like, or a number, is no program.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.parsers.old_syslog_time import (
    AREA,
    CLOCK,
    FIREWALLS,
    HOST,
    LEVEL,
    OFFSET,
    STAMP,
    STAMP_GROUPS,
    WORD,
    plain_time,
    time_of,
)
from headwater_streams.sources.parsers.parser import BLANKS, let, match

Row = Callable[[Column, Column, Column, Column, Column, Column], Column]

_B = BLANKS
_PRIORITY = r"<([0-9]{1,3})>"
_NO_HOST = rf"{LEVEL}[ \t]|last message "
_HOST = f"({HOST})"
# Programs of macOS have blanks in their names.
_WORDS = r"[A-Z][A-Za-z0-9.]{0,31}(?: [A-Z0-9][A-Za-z0-9.]{0,31}){1,3}(?=\[[0-9]{1,10}\]:)"
_TAG = (
    rf"(?:(?![0-9./-]*+[\[:])({WORD}(?=[\[:])|{_WORDS})"
    r"(?:\[([^\]\s]{0,128}+)\](?::[ \t]?|(?<=[0-9]\])[ \t])|:(?!//|\\|:)[ \t]?))?"
)
_MESSAGE = r"(.*)(?<![\r\n])[\r\n]*+"

_MNEMONIC = r"%[A-Za-z0-9_-]{1,64}?-[0-7]-[A-Z0-9_]"
_FIREWALL = rf"%(?:{FIREWALLS})-"
_COUNT = rf"[0-9]{{1,10}}+:{_B}"
_NODE = r"[A-Z0-9]{1,4}/[0-9]{1,2}/[A-Z0-9]{1,6}(?:/CPU[0-9])?:"
_CISCO_DATE = (
    r"[*.]?(?:[0-9]{4} )?[A-Z][a-z]{2} {1,2}[0-9]{1,2} (?:[0-9]{4} )?[0-9:]{8}(?:\.[0-9]{1,6})?"
    r"(?: [A-Za-z][A-Za-z0-9+]{0,11}(?::[0-9]{2})?)?"
)

# The form of most lines, with as few groups as possible. It leaves lines to the other forms that may be of them, and
# whose words would be taken for a host or a program here.
_DATE = rf"([A-Z][a-z]{{2}}) {{1,2}}([0-9]{{1,2}})(?: ([0-9]{{4}}))? ({CLOCK})(\.[0-9]{{1,6}})?"
_ISO = rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{CLOCK}(?:\.[0-9]{{1,9}})?(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}}))"
_OTHER_TIME = (
    rf"(?:Z|[A-Z]{{2,6}}|{AREA}|(?:19|20)[0-9]{{2}}|[+-]\p{{Nd}}[\p{{Nd}}:]*+)[ \t:]|[ \t]|{_NO_HOST}"
)
_RELAYED_FRONT = rf"{_COUNT}|{_CISCO_DATE}:{_B}{_MNEMONIC}"
_OTHER_TAG = rf"[ \t:]|[A-Za-z0-9._-]++:{_B}(?:{_RELAYED_FRONT}|{_FIREWALL})|{_RELAYED_FRONT}|{_NODE}"
_PLAIN = (
    rf"(?:{_PRIORITY})?(?:{_DATE}|{_ISO}) (?!{_OTHER_TIME})(?:{_HOST} )?+(?!{_OTHER_TAG}){_TAG}{_MESSAGE}"
)

# An empty group says whether a part of Cisco's came before the time: then no host follows it.
_NAME = rf"(?!{_COUNT})(?:[A-Za-z0-9._/-]++|:(?![ \t]))++"
_FRONT = (
    rf"(?:(?=[0-9]{{0,10}}+:[ \t]|[^%]*+(?<=:[ \t]){_MNEMONIC})(?![A-Za-z]{{3}}{_B}[0-9]|[0-9]{{4}}[ -])"
    rf"(?:[0-9]{{0,10}}+:[ \t]*+)?(?:({_NAME})(?::{_B}|{_B}(?={_COUNT})))?(?:{_COUNT})?[*.]?(?:{_NODE})?())?"
)
_NO_FRONT = r"(?!\3)"
_ANY_HOST = (
    rf"(?:{_NO_FRONT}(?!{_NO_HOST})"
    rf"(?:{_HOST}(?:[ \t]++:(?={_B}%))?{_B}|([A-Za-z0-9._-]++):{_B}(?={_FIREWALL})))?+"
)
_RELAYED = (
    rf"(?:(?:{_NODE}|(?:[A-Za-z0-9._-]++:{_B})?)"
    rf"(?:{_COUNT}(?:{_CISCO_DATE}:{_B})?|{_CISCO_DATE}:{_B}|(?={_FIREWALL}))"
    rf"(?=(?:[a-z][^ \t\[:]{{0,63}}+\[[0-9]++\]:{_B})?{_MNEMONIC}))?+"
)
# Many logs that are not syslog begin with a date and a time of day.
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ \t]"
_LIKE_SYSLOG = (
    rf"(?!{_DAY})|(?={_DAY}[ \t]*+[0-9:.,]{{8,18}}(?:[ \t]?{OFFSET})?{_B}(?!{_NO_HOST})"
    rf"[A-Za-z0-9._:%/@-]++{_B}{WORD}(?:\[[^\]\s]{{0,128}}+\])?:[ \t])"
)
_OTHER = (
    rf"(?:{_PRIORITY}[ \t]*+|{_LIKE_SYSLOG}){_FRONT}{STAMP}(?::{_B}|{_NO_FRONT}{_B})"
    rf"{_ANY_HOST}{_RELAYED}{_TAG}{_MESSAGE}"
)

NO_VERSION = r"(?:-|[+-]?[.]?\p{N}\S{0,40}+) \p{Nd}{4}-\p{Nd}{2}-\p{Nd}{2}T"
"""A number, or none, before RFC 5424's time: a version that does not exist."""
# A time with a day that does not exist, or with other digits, does not begin a message: the line has a time, and the
# record's own would differ from it.
_DIGIT = r"\p{Nd}"
_LIKE_A_TIME = (
    rf"[A-Z][A-Za-z]{{2}}{_B}[+-]?{_DIGIT}{{1,2}}{_B}[+-]?{_DIGIT}|[0-9]{{4}} [A-Z]|{_DIGIT}{{4}}-{_DIGIT}{{2}}-|"
    rf"{_DIGIT}{{1,5}} [A-Z][a-z]{{2}} {{1,2}}{_DIGIT}|"
    rf"[a-z]{{3}}{_B}{_DIGIT}{{1,2}}{_B}{_DIGIT}{{2}}:{_DIGIT}{{2}}:{_DIGIT}{{2}}|"
    rf"{NO_VERSION}"
)
_UPTIME = r"(?:[0-9]{1,2}:[0-9]{2}:[0-9]{2}|(?:[0-9]++[ywdhm])++)"
_TIMELESS = (
    rf"{_PRIORITY}[ \t]*+(?![ \t\r\n]|\z|(?:[0-9]{{0,10}}+:[ \t]*+)?(?:{_NAME}:{_B})?(?:{_COUNT})?"
    rf"[*.]?(?:{_LIKE_A_TIME}))"
    rf"(?:(?:[0-9]{{0,10}}+:{_B})?(?:(?!{_UPTIME}:)({_NAME}):{_B})?(?:{_COUNT})?(?:{_UPTIME}:{_B})?"
    rf"(?={_MNEMONIC}))?{_TAG}{_MESSAGE}"
)


def old_form(text: Column, timestamp: Column, zone: str, row: Row) -> Column:
    """A line of RFC 3164's kind.

    Args:
        text: The line.
        timestamp: The record's timestamp.
        zone: The zone of times without one.
        row: Makes the result from priority, time, host, app, pid and message; a missing text is empty, and the time is
            null where it does not exist.
    """

    def plain(fields: Sequence[Column]) -> Column:
        priority, *stamp, host, app, pid, message = fields
        time = plain_time(stamp, timestamp, zone)
        return let(time, lambda parsed_time: row(priority, parsed_time, host, app, pid, message))

    def other(fields: Sequence[Column]) -> Column:
        priority, name, _, *stamp, host, firewall, app, pid, message = fields
        time = time_of(stamp, timestamp, zone)
        return let(
            time,
            lambda parsed_time: row(priority, parsed_time, F.concat(name, host, firewall), app, pid, message),
        )

    def timeless(fields: Sequence[Column]) -> Column:
        priority, name, app, pid, message = fields
        return row(priority, timestamp, name, app, pid, message)

    return F.coalesce(
        match(text, _PLAIN, 11, plain),
        match(text, _OTHER, STAMP_GROUPS + 8, other),
        match(text, _TIMELESS, 5, timeless),
    )
