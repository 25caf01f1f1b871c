"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Change, ChangeKind, ConfigKind, CoordinationError
from headwater_broker.log import CONFIG_KEYS, InvalidConfigError, LogConfig, Slices, finished, format_value
from headwater_broker.server.apis.topics import check_topic_name
from headwater_broker.server.core import Request, Response
from headwater_broker.server.described import Describer, Entry, list_elements
from headwater_broker.server.errors import ApiError, UsageError, error_code
from headwater_broker.server.kafka_keys import kafka_keys
from headwater_broker.server.loggers import LoggerError, check_levels, logger_levels, set_levels
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.server.state import ALL_BROKERS
from headwater_broker.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8

_FROM_LOGGER = 6
"""Kafka's DYNAMIC_BROKER_LOGGER_CONFIG."""

_FEW = 8
"""So many resources are described at once."""

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

Check = Callable[[Mapping[str, str]], None]
"""Raises where a resource may not have these settings."""

Merge = Callable[[Mapping[str, str], Any], dict[str, str]]
"""Makes a resource's new settings from its old ones and what the request says."""


class ConfigApis:
    """Settings of topics and brokers, kept in shared state."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._describer = Describer(node.live, node.places)
        node.core.register(DESCRIBE_CONFIGS, self.describe_configs)
        node.core.register(ALTER_CONFIGS, self.alter_configs)
        node.core.register(INCREMENTAL_ALTER_CONFIGS, self.incremental_alter_configs)

    # -- describing ------------------------------------------------------------------------------------

    def describe_configs(self, request: Request) -> Response | Awaitable[Response]:
        """Answers DescribeConfigs, each resource for itself; others come first where there are many."""
        slices = self._describe_all(request)
        if len(request.body.resources) <= _FEW:
            return finished(slices)
        return self._node.core.work.answer(request.connection, slices)

    def _describe_all(self, request: Request) -> Slices[Response]:
        synonyms = request.get("include_synonyms", False)
        documentation = request.get("include_documentation", False)
        results = []
        # Most topics have the same few settings of their own.
        cache: dict[tuple[tuple[str, str], ...], list[Entry]] = {}
        for resource in request.body.resources:
            code, message, configs = ErrorCode.none, None, []
            try:
                configs = self._describe(resource, cache, synonyms=synonyms, documentation=documentation)
            except ApiError as error:
                code, message = error.code, str(error)
            results.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                    "configs": configs,
                }
            )
            yield
        return {"results": results}

    def _describe(
        self,
        resource: Any,
        cache: dict[tuple[tuple[str, str], ...], list[Entry]],
        *,
        synonyms: bool,
        documentation: bool,
    ) -> list[Entry]:
        describer = self._describer
        name: str = resource.resource_name
        if resource.resource_type == _TOPIC:
            check_topic_name(name)
            self._check_topic(name)
            own = self._node.cluster.topic_configs.get(name, {})
            key = tuple(sorted(own.items()))
            entries = cache.get(key)
            if entries is None:
                entries = cache[key] = describer.topic(own, synonyms=synonyms, documentation=documentation)
            described = entries
        elif resource.resource_type == _BROKER and not name:
            described = describer.all_brokers(synonyms=synonyms, documentation=documentation)
        elif resource.resource_type == _BROKER:
            self._check_broker(name, "expected {} or empty string")
            described = describer.broker(synonyms=synonyms, documentation=documentation)
        elif resource.resource_type == _BROKER_LOGGER:
            self._check_logger_broker(name)
            described = [_describe_logger(*each) for each in logger_levels().items()]
        else:
            raise ApiError(ErrorCode.invalid_request, f"Unsupported resource type: {resource.resource_type}")
        requested = resource.configuration_keys
        return [each for each in described if not requested or each["name"] in requested]

    def _check_topic(self, name: str) -> None:
        if name not in self._node.cluster.topics:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")

    def _check_broker(self, name: str, expected: str = "expected {}") -> None:
        me = str(self._node.me.broker_id)
        if re.fullmatch("[+-]?[0-9]+", name) is None:
            raise ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
        if name != me:
            message = f"Unexpected broker id, {expected.format(me)}, but received {name}"
            raise ApiError(ErrorCode.invalid_request, message)

    def _check_logger_broker(self, name: str) -> None:
        if not name:
            raise ApiError(ErrorCode.invalid_request, "Broker id must not be empty")
        self._check_broker(name)

    # -- changing --------------------------------------------------------------------------------------

    async def alter_configs(self, request: Request) -> Response:
        """Answers AlterConfigs: the settings given replace all that there were."""
        return await self._alter(request, lambda _, configs: {each.name: each.value for each in configs})

    async def incremental_alter_configs(self, request: Request) -> Response:
        """Answers IncrementalAlterConfigs: each setting is set, removed, or has list elements changed."""
        return await self._alter(request, self._merged, loggers=True)

    async def _alter(self, request: Request, merge: Merge, *, loggers: bool = False) -> Response:
        answers = []
        resources = request.body.resources
        named = Counter((each.resource_type, each.resource_name) for each in resources)
        async for resource in unhurried(resources):
            code, message = ErrorCode.none, None
            try:
                if named[resource.resource_type, resource.resource_name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
                if loggers and resource.resource_type == _BROKER_LOGGER:
                    self._alter_loggers(resource, validate_only=request.body.validate_only)
                else:
                    await self._alter_one(resource, merge, validate_only=request.body.validate_only)
            except (ApiError, InvalidConfigError, CoordinationError) as error:
                code, message = error_code(error), str(error)
            answers.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        return {"responses": answers}

    async def _alter_one(self, resource: Any, merge: Merge, *, validate_only: bool) -> None:
        name: str = resource.resource_name
        _check_entries(resource.configs)
        if resource.resource_type == _TOPIC:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
            self._check_topic(name)
            kind, entity = ConfigKind.TOPIC, name
            check: Check = self._check_topic_configs
        elif resource.resource_type == _BROKER:
            if name:
                self._check_broker(name)
            kind, entity = ConfigKind.BROKER, name or ALL_BROKERS
            check = _refusing(self._node.live.check if name else self._node.live.check_for_all)
        else:
            raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {resource.resource_type}")
        node = self._node
        present = await node.ask(node.coordinator.get_config, kind, entity)
        values = merge(present, resource.configs)
        check(values)
        if not validate_only:
            await node.ask(node.coordinator.set_config, kind, entity, values)
            await node.state.settle(Change(ChangeKind.CONFIGS, f"{kind.value}/{entity}"))

    def _alter_loggers(self, resource: Any, *, validate_only: bool) -> None:
        self._check_logger_broker(resource.resource_name)
        _check_entries(resource.configs)
        if any(each.config_operation not in (_SET, _DELETE) for each in resource.configs):
            raise ApiError(ErrorCode.invalid_request, "a log level is no list: set or delete it")
        levels = {
            each.name: each.value if each.config_operation == _SET else None for each in resource.configs
        }
        try:
            check_levels(levels)
        except LoggerError as error:
            raise ApiError(ErrorCode.invalid_config, str(error)) from error
        if not validate_only:
            set_levels(levels)

    def _check_topic_configs(self, values: Mapping[str, str]) -> None:
        LogConfig.parse(values, self._node.settings.log)

    def _merged(self, present: Mapping[str, str], configs: Any) -> dict[str, str]:
        values = dict(present)
        for each in configs:
            operation = each.config_operation
            if operation == _SET:
                values[each.name] = each.value
            elif operation == _DELETE:
                values.pop(each.name, None)
            elif operation in (_APPEND, _SUBTRACT):
                values[each.name] = _changed_list(each, values.get(each.name))
            else:
                raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {operation}")
        return values


def _describe_logger(name: str, level: str) -> Entry:
    return {
        "name": name,
        "value": level,
        "read_only": False,
        "config_source": _FROM_LOGGER,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": 0,
        "documentation": None,
    }


def _refusing(check: Check) -> Check:
    """A check of a broker's settings that refuses as the protocol does."""

    def checked(values: Mapping[str, str]) -> None:
        try:
            check(values)
        except UsageError as error:
            raise ApiError(ErrorCode.invalid_request, str(error)) from error

    return checked


def _check_entries(configs: Any) -> None:
    names = [each.name for each in configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [
        each.name
        for each in configs
        if each.value is None and getattr(each, "config_operation", _SET) != _DELETE
    ]
    if nulls:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")


def _changed_list(config: Any, present: str | None) -> str:
    verb = "append" if config.config_operation == _APPEND else "subtract"
    elements = list(list_elements(present)) if present is not None else _default_list(config.name, verb)
    _default_list(config.name, verb)
    operands = list_elements(config.value)
    if config.config_operation == _APPEND:
        present_ones = set(elements)
        return ",".join([*elements, *(each for each in operands if each not in present_ones)])
    gone = set(operands)
    return ",".join(each for each in elements if each not in gone)


def _default_list(name: str, verb: str) -> Sequence[str]:
    """The default of a setting that must be a list, of a topic or a broker."""
    if name in CONFIG_KEYS:
        kind, default = CONFIG_KEYS[name].kind, format_value(CONFIG_KEYS[name].default)
    elif name in kafka_keys():
        kind, default = kafka_keys()[name].kind, kafka_keys()[name].default or ""
    else:
        raise ApiError(ErrorCode.invalid_config, f"Unknown config name: {name}")
    if kind != "LIST":
        raise ApiError(ErrorCode.invalid_config, f"Config value {verb} is not allowed for config key: {name}")
    return list_elements(default)
