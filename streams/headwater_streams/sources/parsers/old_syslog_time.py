"""The times of RFC 3164's syslog, most of which have no year and no zone."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.parsers.parser import BLANKS, LEAP, let
from headwater_streams.sources.parsers.year import latest

_ZONES = {
    "+00:00": "Z UTC GMT WET",
    "+01:00": "CET MET WEST BST",
    "+02:00": "CEST MEST METDST EET",
    "+03:00": "EEST MSK",
    "+08:00": "AWST HKT SGT",
    "+09:00": "JST KST",
    "+09:30": "ACST",
    "+10:00": "AEST",
    "+10:30": "ACDT",
    "+11:00": "AEDT",
    "+12:00": "NZST",
    "+13:00": "NZDT",
    "-10:00": "HST",
    "-09:00": "AKST",
    "-08:00": "PST AKDT",
    "-07:00": "MST PDT",
    "-06:00": "CST MDT",
    "-05:00": "EST CDT",
    "-04:00": "EDT",
}
"""The zones of RFC 822 for North America, and others whose name means one offset in most logs. "IST" is three zones."""

_B = BLANKS
CLOCK = r"[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
_ANY_CLOCK = rf"(?:{CLOCK}|[0-2][0-9]:{LEAP})"
OFFSET = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_NAMES = "|".join(name for names in _ZONES.values() for name in names.split())
FIREWALLS = "ASA|FTD|PIX|FWSM|NGIPS"
"""The beginnings of the mnemonics of Cisco's firewalls."""
# A device's own name for its zone stands before its colon; a firewall has its name there.
_ZONE = (
    rf"({OFFSET}|(?:UTC|GMT)[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?|(?:{_NAMES})|"
    rf"[A-Za-z]{{3,12}}(?=:{_B}%(?!{FIREWALLS})))(?=[ \t:])"
)
LEVEL = r"(?i:debug|verbose|trace|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|alert|emerg|fatal|severe|panic)"
HOST = r"[A-Za-z0-9._:%/@-]++(?<=[A-Za-z0-9._]|::)"
WORD = r"""[^ \t\r\n\[:"'{}<>=,;|]{1,64}+"""
AREA = r"(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Etc|Europe|Indian|Pacific)/[A-Za-z0-9_/+-]++"
"""A zone of the IANA's database, by its name."""
# A short name in capitals before a host and a program; a host's own name would be followed by the program.
_OTHER_ZONE = rf"(?!{LEVEL}[ \t])(?:[A-Z]{{2,5}}|{AREA})(?=(?:{_B}(?:19|20)[0-9]{{2}})?{_B}{HOST}{_B}"
_OTHER_ZONE += rf"(?![0-9./-]*+[\[:]){WORD}(?:\[[^\]\s]{{0,128}}+\])?:(?!//|\\|:))"
_NO_OFFSET = r"[+-]\p{Nd}[\p{Nd}:]*+(?=[ \t:])"
_NO_ZONE = f"(?!{_B}(?:{_OTHER_ZONE}|{_NO_OFFSET}))"
STAMP = (
    rf"(?:(?:([0-9]{{4}}){_B})?([A-Za-z]{{3}}){_B}([0-9]{{1,2}})(?:{_B}([0-9]{{4}}))?{_B}({_ANY_CLOCK})"
    rf"(\.[0-9]{{1,6}})?[0-9]*+(?:{_B}{_ZONE}|{_NO_ZONE})(?:{_B}((?:19|20)[0-9]{{2}})(?=[ \t:]))?|"
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:T|{_B})({_ANY_CLOCK})([.,][0-9]{{1,9}})?"
    rf"(?:[ \t]?({OFFSET})|{_NO_ZONE})(?=[ \t:]))"
)
"""A time of any of these forms."""
STAMP_GROUPS = 12


def plain_time(groups: Sequence[Column], timestamp: Column, zone: str) -> Column:
    """The time of month, day, year, time of day and its fraction, or an ISO 8601 time with its zone."""
    month, day, year, clock, fraction, iso = groups
    by_date = _by_date(year, month, day, F.concat(clock, fraction, F.lit(f" {zone}")), timestamp)
    return F.when(iso != "", F.try_to_timestamp(iso)).otherwise(by_date)


def time_of(groups: Sequence[Column], timestamp: Column, zone: str) -> Column:
    """The time of the groups of `STAMP`; a leap second is the first of the next minute, as in POSIX."""
    year_before, month, day, year_within, clock, fraction, named, year_after, date, *iso = groups
    iso_clock, iso_fraction, offset = iso
    seconds = F.concat(clock, iso_clock)
    is_leap = seconds.endswith("60")
    until = F.concat(
        F.when(is_leap, F.concat(F.substring(seconds, 1, 6), F.lit("59"))).otherwise(seconds),
        fraction,
        F.translate(iso_fraction, ",", "."),
        F.lit(" "),
        _zone(F.concat(named, offset), zone),
    )
    year = F.concat(year_before, year_within, year_after)

    def read(until: Column) -> Column:
        by_date = _by_date(year, month, day, until, timestamp)
        return F.when(date != "", F.try_to_timestamp(F.concat(date, F.lit(" "), until))).otherwise(by_date)

    later = F.expr("INTERVAL 1 SECOND")
    return let(let(until, read), lambda parsed: F.when(is_leap, parsed + later).otherwise(parsed))


def unknown_zone(text: Column) -> Column:
    """The unknown name in the place of a zone behind a line's time; empty if there is none."""
    before = rf"(?s)\A[^%]{{0,80}}?{_ANY_CLOCK}(?:[.,][0-9]{{1,9}})?{_B}"
    return F.regexp_extract(text, rf"{before}(?!(?:{_NAMES}|{OFFSET})[ \t])({_OTHER_ZONE}|{_NO_OFFSET})", 1)


def wrong_date(text: Column) -> Column:
    """The date before a line's time of day, if no calendar has it, as `Feb 30`; else empty."""
    year, day = r"(?:19|20)[0-9]{2}", "[0-9]{1,2}"
    month = "(?i:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    by_name = rf"(?:{year}{_B})?{month}{_B}{day}(?:{_B}{year})?(?={_B}{_ANY_CLOCK})"
    by_number = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?=(?:T|{_B}){_ANY_CLOCK})"
    date_text = F.regexp_extract(text, rf"(?s)\A[^%]{{0,80}}?(?<![A-Za-z0-9])({by_name}|{by_number})", 1)

    def checked(date: Column) -> Column:
        parts = [F.regexp_extract(date, each, 1) for each in (f"({year})", f"({month})", rf"\b({day})\b")]
        # A date without a year exists if some year has it.
        some_year = F.when(parts[0] == "", F.lit("2000")).otherwise(parts[0])
        named = F.try_to_timestamp(F.concat_ws(" ", some_year, *parts[1:]), F.lit("yyyy MMM d"))
        numbered = F.try_to_timestamp(date, F.lit("yyyy-MM-dd"))
        is_date = F.when(F.contains(date, F.lit("-")), numbered.isNotNull()).otherwise(named.isNotNull())
        return F.when(is_date, F.lit("")).otherwise(date)

    return let(date_text, lambda date: F.when(date == "", date).otherwise(checked(date)))


def _zone(text: Column, zone: str) -> Column:
    """The zone in a form that Spark reads; null for a name that is not in `_ZONES`."""
    minutes = F.regexp_extract(text, "[+-][0-9]{1,2}:?([0-9]{2})$", 1)
    offset = F.concat(
        F.regexp_extract(text, "[+-]", 0),
        F.lpad(F.regexp_extract(text, "[+-]([0-9]{1,2}?)(?::?[0-9]{2})?$", 1), 2, "0"),
        F.lit(":"),
        F.when(minutes != "", minutes).otherwise("00"),
    )
    names = [F.lit(text) for at, each in _ZONES.items() for name in each.split() for text in (name, at)]
    named = F.element_at(F.create_map(*names), F.upper(text))
    return F.when(text == "", F.lit(zone)).when(text.rlike("[+-]"), offset).otherwise(named)


def _by_date(year: Column, month: Column, day: Column, until: Column, timestamp: Column) -> Column:
    """The time of a date; `until` is the time of day and its zone. A date without a year is the latest possible."""
    rest = F.concat(F.lit(" "), month, F.lit(" "), day, F.lit(" "), until)
    return F.when(year != "", _dated(year, rest)).otherwise(
        latest(lambda each: _dated(each, rest), timestamp)
    )


def _dated(year: Column, rest: Column) -> Column:
    return F.try_to_timestamp(F.concat(year.cast("string"), rest), F.lit("yyyy MMM d HH:mm:ss[.SSSSSS] VV"))
