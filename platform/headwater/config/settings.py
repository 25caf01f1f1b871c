"""The settings, typed and frozen; conf/headwater.toml says what each means and why its default is that."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from headwater_broker.numbers import parse_decimal, parse_integer


def _whole(value: object) -> object:
    """Pydantic itself takes `1_000`, digits of other scripts and `true`."""
    try:
        if isinstance(value, bool):
            raise ValueError
        return parse_integer(value) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("int_parsing", "input should be a valid integer") from None


def _decimal(value: object) -> object:
    try:
        if isinstance(value, bool):
            raise ValueError
        return parse_decimal(value) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("float_parsing", "input should be a valid number") from None


def _address(value: object) -> object:
    if isinstance(value, str) and value and not value.startswith(("http://", "https://")):
        raise PydanticCustomError("address", "give an address that begins with http:// or https://")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Decimal = Annotated[float, BeforeValidator(_decimal), Field(allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StackSettings(_Section):
    """The local stack."""

    host: str = "127.0.0.1"
    port: Annotated[Whole, Field(ge=0, le=65535)] = 9092
    brokers: Annotated[Whole, Field(ge=1, le=64)] = 1
    coordinator: Literal["zookeeper", "memory"] = "zookeeper"
    zookeeper: str = ""
    registry: bool = False
    registry_port: Annotated[Whole, Field(ge=0, le=65535)] = 8081
    zookeeper_heap_mb: Annotated[Whole, Field(ge=32)] = 128
    ready_timeout_s: Annotated[Decimal, Field(gt=0)] = 60
    stop_timeout_s: Annotated[Decimal, Field(gt=0)] = 30


class RegistrySettings(_Section):
    """The schema registry that jobs and commands ask."""

    url: str = ""
    username: str = ""
    password: SecretStr = SecretStr("")
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: SecretStr = SecretStr("")


class SparkSettings(_Section):
    """The Spark session."""

    master: Annotated[str, Field(pattern=r"^$|^(local(\[.*\])?|spark://.+|yarn|k8s://.+)$")] = ""
    cores: Annotated[Whole, Field(ge=1)] = 2
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgtKMGT]$")] = "2g"
    log: Literal["error", "warn", "info", "debug"] = "error"
    conf: dict[str, str] = {}


class JobSettings(_Section):
    """How running jobs behave."""

    trigger_interval_s: Annotated[Decimal, Field(gt=0)] = 1.0
    ledger_copy_every: Annotated[Whole, Field(ge=1)] = 20
    progress_every_s: Annotated[Decimal, Field(gt=0)] = 5.0
    compact_every: Annotated[Whole, Field(ge=2)] = 100
    files_kept_h: Annotated[Whole, Field(ge=1)] = 168
    log_kept_days: Annotated[Decimal, Field(ge=1)] = 30
    restart: Literal["passing", "always", "never"] = "passing"
    restart_tries: Annotated[Whole, Field(ge=0)] = 3
    restart_first_s: Annotated[Decimal, Field(gt=0)] = 1.0
    restart_most_s: Annotated[Decimal, Field(gt=0)] = 60.0


class QualitySettings(_Section):
    """Suites that run beside jobs, and whom they tell when a check breaks."""

    every_minutes: Annotated[Decimal, Field(ge=0)] = 0
    after_commits: Annotated[Whole, Field(ge=0)] = 0
    kept_days: Annotated[Decimal, Field(ge=0, le=36_500)] = 0
    alarm_command: str = ""
    alarm_webhook: Annotated[str, BeforeValidator(_address), Field(repr=False)] = ""


class ClientSettings(_Section):
    """How clients reach a cluster: commands, jobs, backfills, audits alike."""

    bootstrap: str = ""
    security_protocol: Literal["", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = ""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    sasl_username: str = ""
    sasl_password: SecretStr = SecretStr("")
    oauth_url: str = ""
    oauth_client_id: str = ""
    oauth_client_secret: SecretStr = SecretStr("")
    oauth_scope: str = ""
    oauth_ca_location: str = ""
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: SecretStr = SecretStr("")
    properties: str = ""
    timeout_s: Annotated[Decimal, Field(gt=0, le=3600)] = 15
    kafka: dict[str, str] = Field(default={}, repr=False)


class LineageSettings(_Section):
    """Events of OpenLineage about what jobs read and write."""

    to: str = ""
    namespace: Annotated[str, Field(min_length=1)] = "headwater"
    api_key: SecretStr = SecretStr("")
    period_s: Annotated[Whole, Field(ge=1, le=86_400)] = 60
    timeout_s: Annotated[Decimal, Field(gt=0, le=600)] = 5


class Settings(_Section):
    """All of conf/headwater.toml."""

    stack: StackSettings = StackSettings()
    broker: dict[str, str] = {}
    registry: RegistrySettings = RegistrySettings()
    spark: SparkSettings = SparkSettings()
    jobs: JobSettings = JobSettings()
    quality: QualitySettings = QualitySettings()
    lineage: LineageSettings = LineageSettings()
    client: ClientSettings = ClientSettings()
    cluster: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")], ClientSettings] = {}
