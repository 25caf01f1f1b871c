"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Change, ChangeKind, ConfigKind, CoordinationError
from headwater_broker.log import CONFIG_KEYS, ConfigKey, InvalidConfigError, LogConfig, format_value
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.settings import BrokerSettings, describe_settings
from headwater_broker.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

_TOPIC = 2
_BROKER = 4

_FROM_TOPIC = 1
_FROM_BROKER = 4
_FROM_DEFAULT = 5

_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7}

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ConfigApis:
    """Settings of topics, kept in shared state, and of this broker, fixed at its start."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(DESCRIBE_CONFIGS, self.describe_configs)
        node.core.register(ALTER_CONFIGS, self.alter_configs)
        node.core.register(INCREMENTAL_ALTER_CONFIGS, self.incremental_alter_configs)

    def describe_configs(self, request: Request) -> Response:
        """Answers DescribeConfigs, each resource for itself."""
        results = []
        for resource in request.body.resources:
            code, message, configs = ErrorCode.none, None, []
            try:
                configs = self._describe(resource)
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
        return {"results": results}

    def _describe(self, resource: Any) -> list[Response]:
        name: str = resource.resource_name
        settings = self._node.settings
        if resource.resource_type == _TOPIC:
            if name not in self._node.cluster.topics:
                raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
            described = describe_topic_configs(self._node.cluster.topic_configs.get(name, {}), settings.log)
        elif resource.resource_type == _BROKER:
            if name not in ("", str(self._node.me.broker_id)):
                message = f"ask broker {name} itself: this is broker {self._node.me.broker_id}"
                raise ApiError(ErrorCode.invalid_request, message)
            described = _describe_broker(settings) if name else []
        else:
            message = f"resources of type {resource.resource_type} have no settings here"
            raise ApiError(ErrorCode.invalid_request, message)
        wanted = resource.configuration_keys
        return [each for each in described if wanted is None or each["name"] in wanted]

    async def alter_configs(self, request: Request) -> Response:
        """Answers AlterConfigs: the settings given replace all that there were."""
        return await self._alter(request, lambda _, configs: {each.name: each.value for each in configs})

    async def incremental_alter_configs(self, request: Request) -> Response:
        """Answers IncrementalAlterConfigs: each setting is set, removed, or has list elements changed."""
        return await self._alter(request, self._merged)

    async def _alter(self, request: Request, change: Any) -> Response:
        answers = []
        for resource in request.body.resources:
            code, message = ErrorCode.none, None
            try:
                await self._alter_one(resource, change, validate_only=request.body.validate_only)
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

    async def _alter_one(self, resource: Any, change: Any, *, validate_only: bool) -> None:
        node = self._node
        name: str = resource.resource_name
        if resource.resource_type != _TOPIC:
            message = "only topics have settings that can change while a broker runs"
            raise ApiError(ErrorCode.invalid_request, message)
        if name not in node.cluster.topics:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
        present = await node.ask(node.coordinator.get_config, ConfigKind.TOPIC, name)
        values: dict[str, str | None] = change(present, resource.configs)
        configs = {key: value for key, value in values.items() if value is not None}
        LogConfig.parse(configs, node.settings.log)
        if not validate_only:
            await node.ask(node.coordinator.set_config, ConfigKind.TOPIC, name, configs)
            await node.state.settle(Change(ChangeKind.CONFIGS, f"topics/{name}"))

    def _merged(self, present: Mapping[str, str], configs: Any) -> dict[str, str | None]:
        values: dict[str, str | None] = dict(present)
        for each in configs:
            operation = each.config_operation
            if operation == _SET:
                values[each.name] = each.value
            elif operation == _DELETE:
                values.pop(each.name, None)
            elif operation in (_APPEND, _SUBTRACT):
                values[each.name] = self._changed_list(each, values.get(each.name))
            else:
                raise ApiError(ErrorCode.invalid_request, f"{operation} is no config operation")
        return values

    def _changed_list(self, config: Any, present: str | None) -> str:
        key = CONFIG_KEYS.get(config.name)
        if key is None or key.kind != "LIST":
            raise ApiError(ErrorCode.invalid_config, f"{config.name} is no list: set it instead")
        default = getattr(self._node.settings.log, _field(key))
        elements = present.split(",") if present is not None else list(default)
        given = (config.value or "").split(",")
        if config.config_operation == _APPEND:
            return ",".join([*elements, *(each for each in given if each not in elements)])
        return ",".join(each for each in elements if each not in given)


def describe_topic_configs(own: Mapping[str, str], base: LogConfig) -> list[Response]:
    """Every setting of a topic with its value and where that comes from.

    Args:
        own: The topic's own settings.
        base: The broker's defaults for topics.
    """
    return [_describe_topic_config(key, own, base) for key in CONFIG_KEYS.values()]


def _describe_topic_config(key: ConfigKey, own: Mapping[str, str], base: LogConfig) -> Response:
    inherited = getattr(base, _field(key))
    synonyms = [
        {"name": key.broker_name, "value": format_value(inherited), "source": _FROM_BROKER},
        {"name": key.broker_name, "value": format_value(key.default), "source": _FROM_DEFAULT},
    ]
    if inherited == key.default:
        del synonyms[0]
    if key.name in own:
        synonyms.insert(0, {"name": key.name, "value": own[key.name], "source": _FROM_TOPIC})
    return {
        "name": key.name,
        "value": synonyms[0]["value"],
        "read_only": False,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _TYPES[key.kind],
        "documentation": key.doc,
    }


def _describe_broker(settings: BrokerSettings) -> list[Response]:
    defaults = describe_settings(BrokerSettings())
    described: list[Response] = []
    for name, (value, kind, doc) in describe_settings(settings).items():
        source = _FROM_DEFAULT if defaults[name][0] == value else _FROM_BROKER
        described.append(
            {
                "name": name,
                "value": value,
                "read_only": True,
                "config_source": source,
                "is_sensitive": False,
                "synonyms": [{"name": name, "value": value, "source": source}],
                "config_type": _TYPES[kind],
                "documentation": doc,
            }
        )
    return described


def _field(key: ConfigKey) -> str:
    return key.name.replace(".", "_")
