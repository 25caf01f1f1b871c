"""Access rules: who may do what, as Kafka's AclAuthorizer decides it."""

from __future__ import annotations

import random

import pytest

from amount import drawn_seed
from headwater_broker.security import (
    ANONYMOUS,
    AclEntry,
    AclFilter,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
    parse_principal,
)

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOPIC = ResourceType.TOPIC
HOST = "10.0.0.1"

Rule = tuple[str, PatternType, str, str, Operation, Permission]


def authorizer(*rules: Rule, super_users: tuple[Principal, ...] = (), default: bool = True) -> Authorizer:
    """Rules on topics: name, pattern, principal, host, operation, permission."""
    acls: dict[ResourcePattern, set[AclEntry]] = {}
    for name, pattern_type, principal, host, operation, permission in rules:
        pattern = ResourcePattern(TOPIC, name, pattern_type)
        acls.setdefault(pattern, set()).add(AclEntry(principal, host, operation, permission))
    made = Authorizer(super_users, allow_without_acl=default)
    made.replace(acls)
    return made


def rule(
    name: str,
    operation: Operation,
    *,
    prefixed: bool = False,
    who: str = "User:alice",
    host: str = "*",
    deny: bool = False,
) -> Rule:
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return (name, pattern_type, who, host, operation, Permission.DENY if deny else Permission.ALLOW)


def test_authorizer_without_rules_is_not_active_and_allows_everybody() -> None:
    empty = authorizer()
    assert not empty.is_active
    assert empty.allows(ANONYMOUS, HOST, Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    assert authorizer(default=False).is_active


def test_authorizer_resource_without_rules_follows_the_setting() -> None:
    for default in (True, False):
        made = authorizer(rule("clicks", Operation.READ), super_users=(BOB,), default=default)
        assert made.is_active
        assert made.allows(ANONYMOUS, HOST, Operation.WRITE, TOPIC, "other") is default
        assert made.allows(BOB, HOST, Operation.WRITE, TOPIC, "other")
        assert not made.allows(ANONYMOUS, HOST, Operation.READ, TOPIC, "clicks")


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        (Operation.READ, {Operation.READ, Operation.DESCRIBE}),
        (Operation.WRITE, {Operation.WRITE, Operation.DESCRIBE}),
        (Operation.DELETE, {Operation.DELETE, Operation.DESCRIBE}),
        (Operation.ALTER, {Operation.ALTER, Operation.DESCRIBE}),
        (Operation.CREATE, {Operation.CREATE}),
        (Operation.DESCRIBE, {Operation.DESCRIBE}),
        (Operation.ALTER_CONFIGS, {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}),
        (Operation.DESCRIBE_CONFIGS, {Operation.DESCRIBE_CONFIGS}),
    ],
)
def test_authorizer_allowed_operation_implies_what_it_needs(
    given: Operation, implied: set[Operation]
) -> None:
    made = authorizer(rule("t", given))
    field = made.operations(ALICE, HOST, TOPIC, "t")
    assert {each for each in Operation if field & 1 << each} == implied


def test_authorizer_deny_wins_over_every_allow_and_implies_nothing() -> None:
    for denial in (
        rule("clicks", Operation.READ, deny=True),
        rule("*", Operation.ALL, deny=True),
        rule("cl", Operation.READ, prefixed=True, deny=True),
        rule("clicks", Operation.READ, who="User:*", host=HOST, deny=True),
    ):
        made = authorizer(rule("clicks", Operation.ALL), denial)
        assert not made.allows(ALICE, HOST, Operation.READ, TOPIC, "clicks")
    denied_read = authorizer(rule("t", Operation.ALL), rule("t", Operation.READ, deny=True))
    assert denied_read.allows(ALICE, HOST, Operation.DESCRIBE, TOPIC, "t")


def test_authorizer_wildcards_of_resource_principal_and_host() -> None:
    made = authorizer(
        rule("*", Operation.READ, who="User:bob"),
        rule("clicks", Operation.WRITE, who="User:*", host=HOST),
    )
    assert made.allows(BOB, "1.2.3.4", Operation.READ, TOPIC, "anything")
    assert made.allows(ANONYMOUS, HOST, Operation.WRITE, TOPIC, "clicks")
    assert not made.allows(ANONYMOUS, "1.2.3.4", Operation.WRITE, TOPIC, "clicks")
    assert not made.allows(ALICE, HOST, Operation.READ, TOPIC, "anything")


def test_authorizer_prefix_applies_to_names_that_begin_so_only() -> None:
    made = authorizer(rule("team-", Operation.READ, prefixed=True), default=False)
    assert made.allows(ALICE, HOST, Operation.READ, TOPIC, "team-a")
    assert made.allows(ALICE, HOST, Operation.READ, TOPIC, "team-")
    assert not made.allows(ALICE, HOST, Operation.READ, TOPIC, "team")
    assert not made.allows(ALICE, HOST, Operation.READ, TOPIC, "my-team-a")


def test_authorizer_remembered_decision_ends_with_the_rules() -> None:
    made = authorizer(rule("t", Operation.READ))
    assert made.allows(ALICE, HOST, Operation.READ, TOPIC, "t")
    made.replace({ResourcePattern(TOPIC, "t", PatternType.LITERAL): set(authorizer_entries(deny=True))})
    assert not made.allows(ALICE, HOST, Operation.READ, TOPIC, "t")


def authorizer_entries(*, deny: bool) -> list[AclEntry]:
    permission = Permission.DENY if deny else Permission.ALLOW
    return [AclEntry("User:alice", "*", Operation.READ, permission)]


def test_authorizer_some_topic_is_decided_as_by_trying_all_names() -> None:
    """`allows_some` against the definition: is there a name, among those that rules tell apart, that is allowed?"""
    seed = drawn_seed()
    rng = random.Random(seed)
    names = ["a", "ab", "abc", "b", "ba", "c"]
    for _ in range(400):
        rules = [
            rule(
                rng.choice([*names, "*"]),
                rng.choice([Operation.WRITE, Operation.ALL, Operation.READ]),
                prefixed=False,
                deny=rng.random() < 0.4,
                who=rng.choice(["User:alice", "User:bob", "User:*"]),
            )
            for _ in range(rng.randrange(5))
        ] + [
            rule(rng.choice(names), Operation.WRITE, prefixed=True, deny=rng.random() < 0.4)
            for _ in range(rng.randrange(3))
        ]
        made = authorizer(*rules, default=False)
        # A name per rule and one more behind each, which no literal rule is about.
        candidates = [*names, *(f"{name}~" for name in names), "~"]
        some = any(made.allows(ALICE, HOST, Operation.WRITE, TOPIC, name) for name in candidates)
        assert made.allows_some(ALICE, HOST, Operation.WRITE, TOPIC) == some, rules


def test_filter_match_finds_all_rules_that_would_apply() -> None:
    def find(name: str | None, pattern_type: PatternType) -> set[str]:
        chosen = AclFilter(TOPIC, name, pattern_type, None, None, Operation.ANY, Permission.ANY)
        patterns = [
            ResourcePattern(TOPIC, "clicks", PatternType.LITERAL),
            ResourcePattern(TOPIC, "*", PatternType.LITERAL),
            ResourcePattern(TOPIC, "cl", PatternType.PREFIXED),
            ResourcePattern(TOPIC, "clicks", PatternType.PREFIXED),
            ResourcePattern(ResourceType.GROUP, "clicks", PatternType.LITERAL),
        ]
        return {f"{each.name}/{each.pattern_type.name}" for each in patterns if chosen.matches_pattern(each)}

    assert find("clicks", PatternType.LITERAL) == {"clicks/LITERAL"}
    assert find("clicks", PatternType.ANY) == {"clicks/LITERAL", "clicks/PREFIXED"}
    assert find("clicks", PatternType.MATCH) == {
        *("clicks/LITERAL", "*/LITERAL", "cl/PREFIXED", "clicks/PREFIXED"),
    }
    assert find(None, PatternType.PREFIXED) == {"cl/PREFIXED", "clicks/PREFIXED"}


def test_filter_entry_by_each_of_its_parts() -> None:
    entry = AclEntry("User:alice", HOST, Operation.READ, Permission.ALLOW)

    def matches(
        who: str | None = None,
        host: str | None = None,
        operation: Operation = Operation.ANY,
        permission: Permission = Permission.ANY,
    ) -> bool:
        chosen = AclFilter(TOPIC, None, PatternType.ANY, who, host, operation, permission)
        return chosen.matches_entry(entry)

    assert matches()
    assert matches("User:alice", HOST, Operation.READ, Permission.ALLOW)
    assert not matches(who="User:bob")
    assert not matches(host="*")
    assert not matches(operation=Operation.ALL)
    assert not matches(permission=Permission.DENY)


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_principal_malformed_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="User:name"):
        parse_principal(text)


def test_principal_name_may_hold_colons() -> None:
    assert parse_principal("User:urn:x:1") == Principal("User", "urn:x:1")


def test_authorizer_long_names_are_decided_and_not_remembered() -> None:
    made = authorizer(rule("t", Operation.READ, prefixed=True))
    for name in ("t" * 100, "t" * 100_000):
        assert made.allows(ALICE, HOST, Operation.READ, TOPIC, name)
        assert not made.allows(BOB, HOST, Operation.READ, TOPIC, name)
    assert {len(name) for *_, name in made._decisions} == {100}
