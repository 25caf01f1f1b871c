"""Where settings come from, and what a mistake in them says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.config import load_settings
from headwater.config.load import is_open
from headwater.errors import UsageError


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty conf/ in the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    folder.mkdir()
    return folder


def test_load_without_anything_gives_the_shipped_file(conf: Path) -> None:
    loaded = load_settings({})
    assert loaded.settings.stack.port == 9092
    assert loaded.sources["stack.port"].startswith("the shipped conf/headwater.toml line ")


def test_load_each_layer_wins_over_those_below(conf: Path) -> None:
    (conf / "headwater.toml").write_text("[stack]\nport = 1001\nbrokers = 2\nhost = '127.0.0.2'\n")
    environ = {"HEADWATER_STACK_BROKERS": "3", "HEADWATER_STACK_HOST": "127.0.0.3"}
    loaded = load_settings(environ, {"stack.host": "127.0.0.4", "stack.zookeeper": None})
    stack = loaded.settings.stack
    assert (stack.port, stack.brokers, stack.host, stack.zookeeper) == (1001, 3, "127.0.0.4", "")
    assert loaded.sources["stack.port"] == "conf/headwater.toml line 2"
    assert loaded.sources["stack.brokers"] == "HEADWATER_STACK_BROKERS"
    assert loaded.sources["stack.host"] == "--host"


def test_load_a_second_file_wins_over_the_first(conf: Path) -> None:
    (conf / "headwater.toml").write_text("[stack]\nport = 1001\nbrokers = 2\n")
    (conf / "headwater-local.toml").write_text("[stack]\nport = 1002\n")
    (conf / "another-tool.toml").write_text("[whatever]\nport = 1\n")
    stack = load_settings({}).settings.stack
    assert (stack.port, stack.brokers) == (1002, 2)


def test_load_a_named_file_is_read_in_place_of_the_folder(conf: Path, tmp_path: Path) -> None:
    (conf / "headwater.toml").write_text("[stack]\nport = 1001\n")
    named = tmp_path / "mine.toml"
    named.write_text("[stack]\nbrokers = 2\n")
    stack = load_settings({"HEADWATER_CONFIG": str(named)}).settings.stack
    assert (stack.port, stack.brokers) == (9092, 2)


def test_load_broker_properties_from_every_spelling(conf: Path) -> None:
    (conf / "headwater.toml").write_text(
        '[broker]\n"num.partitions" = 3\nlog.retention.hours = 24\nauto.create.topics.enable = false\n'
    )
    broker = load_settings({"HEADWATER_BROKER_NUM_PARTITIONS": "6"}).settings.broker
    assert broker == {
        "num.partitions": "6",
        "log.retention.hours": "24",
        "auto.create.topics.enable": "false",
    }


def test_load_spark_settings_keep_their_names(conf: Path) -> None:
    (conf / "headwater.toml").write_text("[spark.conf]\nspark.sql.ansi.enabled = true\n")
    assert load_settings({}).settings.spark.conf == {"spark.sql.ansi.enabled": "true"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[stack]\nport = 1\nbrokerz = 2\n",
            "conf/headwater.toml line 3: there is no setting stack.brokerz: did you mean stack.brokers?",
        ),
        (
            "[stak]\nport = 1\n",
            "conf/headwater.toml line 1: there is no setting stak: did you mean [stack]?",
        ),
        (
            "port = 1\n",
            "conf/headwater.toml line 1: there is no setting port: did you mean stack.port?",
        ),
        (
            "[stack]\n\nbrokers = 0.5\n",
            (
                "conf/headwater.toml line 3: stack.brokers is 0.5: input should be a valid integer, "
                "got a number with a fractional part"
            ),
        ),
        (
            "[stack]\nport = 70000\n",
            "conf/headwater.toml line 2: stack.port is 70000: input should be less than or equal to 65535",
        ),
        (
            "[stack]\ncoordinator = 'paxos'\n",
            "conf/headwater.toml line 2: stack.coordinator is 'paxos': input should be 'zookeeper' or 'memory'",
        ),
        (
            "[quality]\nalarm_webhook = 'hooks.example.org/secret'\n",
            "conf/headwater.toml line 2: quality.alarm_webhook: give an address that begins with http:// or https://",
        ),
    ],
)
def test_load_a_mistake_in_a_file_names_the_line_and_the_nearest_key(
    conf: Path, text: str, message: str
) -> None:
    (conf / "headwater.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_settings({})
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_load_a_file_that_is_not_toml_says_where(conf: Path) -> None:
    (conf / "headwater.toml").write_text("[stack]\nport 1\n")
    with pytest.raises(UsageError, match=r"conf/headwater.toml is not TOML: .*line 2"):
        load_settings({})


def test_load_a_named_file_that_is_not_there_is_an_error(conf: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read nowhere\.toml: no such file or directory"):
        load_settings({"HEADWATER_CONFIG": "nowhere.toml"})


def test_load_an_unknown_variable_names_the_nearest(conf: Path) -> None:
    with pytest.raises(UsageError, match=r"HEADWATER_STACK_PROT .*did you mean HEADWATER_STACK_PORT\?"):
        load_settings({"HEADWATER_STACK_PROT": "1"})


def test_load_a_bad_variable_is_named(conf: Path) -> None:
    with pytest.raises(UsageError, match=r"HEADWATER_STACK_PORT: stack\.port is 'x'"):
        load_settings({"HEADWATER_STACK_PORT": "x"})


def test_values_of_secrets_are_hidden(conf: Path) -> None:
    _private(
        conf / "headwater.toml",
        '[client]\nsasl_password = "hunter2"\n[broker]\nssl.keystore.password = "hunter2"\n'
        '[spark.conf]\nspark.hadoop.fs.s3a.secret.key = "hunter2"\n'
        '[client.kafka]\nsasl.jaas.config = "hunter2"\nssl.key.pem = "hunter2"\n'
        '[cluster.pay]\noauth_client_secret = "hunter2"\n',
    )
    loaded = load_settings({})
    assert loaded.settings.client.sasl_password.get_secret_value() == "hunter2"
    shown = {each.key: each.value for each in loaded.values()}
    assert "hunter2" not in repr(shown)
    assert "hunter2" not in repr(loaded.settings.client)
    assert "hunter2" not in repr(loaded.settings.cluster)
    assert shown["client.sasl_password"] == "********"
    assert shown["broker.ssl.keystore.password"] == "********"
    assert shown["spark.conf.spark.hadoop.fs.s3a.secret.key"] == "********"


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "key", "variable"),
    [
        ("[client]\nsasl_password = 'x'\n", "client.sasl_password", "HEADWATER_CLIENT_SASL_PASSWORD"),
        (
            "[client.kafka]\n'sasl.jaas.config' = 'x'\n",
            "client.kafka.sasl.jaas.config",
            "HEADWATER_CLIENT_KAFKA_SASL_JAAS_CONFIG",
        ),
        (
            "[cluster.eu-west]\nssl_key_password = 'x'\n",
            "cluster.eu-west.ssl_key_password",
            "HEADWATER_CLUSTER_EU_WEST_SSL_KEY_PASSWORD",
        ),
    ],
)
def test_load_a_secret_of_a_file_that_others_may_read_is_refused(
    conf: Path, text: str, key: str, variable: str
) -> None:
    path = conf / "headwater.toml"
    path.write_text(text)
    path.chmod(0o644)
    with pytest.raises(UsageError) as refused:
        load_settings({})
    assert str(refused.value) == (
        f"conf/headwater.toml line 2: {key} is a secret, and others than the owner may read the file: chmod 600 "
        f"conf/headwater.toml (of a mounted secret: defaultMode 0440), or give it by the environment, {variable}"
    )
    path.chmod(0o400)
    load_settings({})


@pytest.mark.parametrize(
    ("owner", "mode", "opened"),
    [
        (1000, 0o600, False), (1000, 0o440, True), (1000, 0o640, True), (1000, 0o604, True),
        (0, 0o440, False), (0, 0o640, False), (0, 0o644, True), (0, 0o444, True), (0, 0o660, True),
    ],
)  # fmt: skip
def test_a_file_of_roots_may_be_its_groups_too(owner: int, mode: int, opened: bool) -> None:
    """So is a secret that Kubernetes mounts for a group (`fsGroup`); its own default is 0644."""
    path: Any = SimpleNamespace(stat=lambda: SimpleNamespace(st_uid=owner, st_mode=0o100000 | mode))
    assert is_open(path) == opened


def test_load_what_is_no_secret_may_stand_in_an_open_file(conf: Path) -> None:
    path = conf / "headwater.toml"
    path.write_text(
        "[client]\nsasl_password = ''\nssl_key_location = 'key.pem'\n[client.kafka]\n"
        "'sasl.oauthbearer.token.endpoint.url' = 'https://x/token'\n"
    )
    path.chmod(0o644)
    shown = {each.key: each.value for each in load_settings({}).values()}
    assert shown["client.kafka.sasl.oauthbearer.token.endpoint.url"] == "https://x/token"


def test_load_named_clusters_from_files_and_the_environment(conf: Path) -> None:
    (conf / "headwater.toml").write_text(
        "[cluster.eu-west]\nbootstrap = 'a:1'\n[cluster.eu-west.kafka]\nclient.id = 'x'\n"
    )
    environ = {
        "HEADWATER_CLUSTER_EU_WEST_SASL_PASSWORD": "secret",
        "HEADWATER_CLUSTER_US_WEST_BOOTSTRAP": "b:1",
        "HEADWATER_CLUSTER_US_WEST_KAFKA_REQUEST_TIMEOUT_MS": "5000",
        "HEADWATER_CLIENT_KAFKA_FETCH_MIN_BYTES": "1",
    }
    loaded = load_settings(environ)
    clusters = loaded.settings.cluster
    assert sorted(clusters) == ["eu-west", "us_west"]
    assert clusters["eu-west"].sasl_password.get_secret_value() == "secret"
    assert (clusters["eu-west"].bootstrap, clusters["eu-west"].kafka) == ("a:1", {"client.id": "x"})
    assert (clusters["us_west"].bootstrap, clusters["us_west"].kafka) == (
        "b:1",
        {"request.timeout.ms": "5000"},
    )
    assert loaded.settings.client.kafka == {"fetch.min.bytes": "1"}
    assert loaded.sources["cluster.eu-west.bootstrap"] == "conf/headwater.toml line 2"
    assert loaded.sources["cluster.eu-west.kafka.client.id"] == "conf/headwater.toml line 4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[cluster.pay]\nsasl_pasword = 'x'\n",
            "line 2: there is no setting cluster.pay.sasl_pasword: did you mean",
        ),
        (
            "[cluster.Pay]\nbootstrap = 'x'\n",
            "[cluster.Pay]: a cluster's name has small letters, digits, '_' and",
        ),
        (
            "[cluster]\nbootstrap = 'x'\n",
            "line 2: cluster.bootstrap is no cluster: a section [cluster.NAME] has",
        ),
        (
            "[cluster.pay]\n",
            "line 1: cluster.pay is no cluster: a section [cluster.NAME] has keys of [client]",
        ),
        ("cluster = 5", "line 1: cluster is no cluster: a section [cluster.NAME] has keys of [client]"),
        ("[cluster.pay]\nsecurity_protocol = 'TLS'\n", "line 2: cluster.pay.security_protocol is 'TLS'"),
    ],
)
def test_load_a_mistake_in_a_named_cluster_is_named(conf: Path, text: str, message: str) -> None:
    (conf / "headwater.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        load_settings({})
    assert message in str(refused.value)


def test_load_a_variable_of_a_named_cluster_without_a_key_is_refused(conf: Path) -> None:
    with pytest.raises(UsageError, match=r"HEADWATER_CLUSTER_PAY_USER names no setting"):
        load_settings({"HEADWATER_CLUSTER_PAY_USER": "x"})


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("HEADWATER_CLUSTER_PROD_KAFKA_SASL_PASSWORD", "cluster.prod-kafka.sasl_password"),
        ("HEADWATER_CLUSTER_PROD_KAFKA_KAFKA_CLIENT_ID", "cluster.prod-kafka.kafka.client.id"),
        ("HEADWATER_CLUSTER_PROD_KAFKA_2_BOOTSTRAP", "cluster.prod_kafka_2.bootstrap"),
        ("HEADWATER_CLUSTER_PROD_KAFKA_CLIENT_ID", "cluster.prod.kafka.client.id"),
    ],
)
def test_load_a_variable_of_a_cluster_with_kafka_in_its_name(conf: Path, variable: str, key: str) -> None:
    (conf / "headwater.toml").write_text(
        "[cluster.prod-kafka]\nbootstrap = 'a:1'\n[cluster.prod_kafka_2]\nsasl_username = 'x'\n"
        "[cluster.prod]\nbootstrap = 'b:1'\n"
    )
    assert load_settings({variable: "x"}).sources[key] == variable


def test_values_of_secrets_do_not_appear_in_errors(conf: Path) -> None:
    _private(conf / "headwater.toml", "[client]\nsasl_password = 12345\n")
    with pytest.raises(UsageError) as caught:
        load_settings({})
    assert "12345" not in str(caught.value)


def test_settings_are_frozen(conf: Path) -> None:
    settings = load_settings({}).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.stack.port = 1  # type: ignore[misc]
