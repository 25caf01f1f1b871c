"""What a schema carries beside its text, and its name in all registries."""

import hashlib
import uuid

from headwater.registry.contracts import guid_of
from headwater.registry.records import Reference, SchemaText


def test_a_schema_has_the_same_name_in_confluents_registry() -> None:
    # Byte by byte what their Schema.updateHash hashes; defaults of rules are those of their entities.
    metadata = {"sensitive": ["z", "a"], "properties": {"b": "2", "a": "1"}, "tags": {"t": ["y", "x"]}}
    rule = {"name": "n", "type": "ENCRYPT", "tags": ["q", "p"], "params": {"k": "v"}, "disabled": True}
    rules = {"domainRules": [rule], "enableAt": "SERVER"}
    schema = SchemaText(
        text='"int"',
        references=(Reference(name="r", subject="s", version=258),),
        contract={"metadata": metadata, "ruleSet": rules},
    )
    hashed = b'"int"' + b"rs\x00\x00\x01\x02" + b"\x01" + b"txya1b2az"
    hashed += b"\x01" + b"nTRANSFORMWRITEREADENCRYPTpqkv\x01" + b"SERVER"
    digest = hashlib.md5(hashed, usedforsecurity=False).digest()
    assert guid_of(schema) == str(uuid.UUID(bytes=digest))
    plain = hashlib.md5(b'"int"', usedforsecurity=False).hexdigest()
    assert guid_of(SchemaText(text='"int"')).replace("-", "") == plain
