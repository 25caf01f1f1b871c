"""The clusters that a command speaks to, by its options, the settings and the home's own stack."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config import Settings, load_settings
from headwater.config.clusters import address_of, default_cluster, named_cluster
from headwater.errors import UsageError, UserError
from headwater.stack.local import bootstrap_of, known_bootstrap
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.topics import cluster_of
from headwater_streams.sources.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from headwater_streams.plan.job import Job


class Clusters:
    """The cluster that is meant where none is named, and those that topics name."""

    def __init__(self, home: Path, bootstrap: str | None, settings: Settings | None = None) -> None:
        """The clusters of a command.

        Args:
            home: The home, whose running stack is used where nothing else names brokers.
            bootstrap: What --bootstrap names: brokers, or a cluster of the settings.
            settings: The settings; by default those of the environment and the files.
        """
        self._home, self._bootstrap = home, bootstrap
        self._settings = load_settings(os.environ).settings if settings is None else settings
        self._bundle = os.environ.get("SSL_CERT_FILE", "")
        self._named: dict[str, KafkaCluster] = {}

    @cached_property
    def default(self) -> KafkaCluster:
        """The cluster of topics that name none; its brokers are empty where none are known.

        Raises:
            UsageError: Its settings are wrong.
        """
        return default_cluster(
            self._settings, self._bootstrap, known_bootstrap(self._home), environ_bundle=self._bundle
        )

    def require_default(self) -> KafkaCluster:
        """The default cluster, where brokers are needed.

        Raises:
            UserError: None are known, or its settings are wrong.
        """
        return self.default if self.default.bootstrap else KafkaCluster(bootstrap_of(self._home))

    def named(self, name: str) -> KafkaCluster:
        """A cluster by its name.

        Raises:
            UsageError: There is none of that name, or its settings are wrong.
        """
        if name not in self._named:
            self._named[name] = named_cluster(self._settings, name, environ_bundle=self._bundle)
        return self._named[name]

    def of_mirror(self, text: str) -> KafkaCluster:
        """A cluster that topics are mirrored into; it is never the unnamed one, whose topics may have the same names.

        Args:
            text: Its name in the settings, or its brokers. They stand for the cluster of the settings that has them,
                and are the cluster's name where none has.

        Raises:
            UsageError: There is none of that name, or its settings are wrong.
        """
        if ":" not in text:
            return self.named(text)
        for name, client in self._settings.cluster.items():
            if address_of(client, f"cluster.{name}") == text:
                return self.named(name)
        own_stack = known_bootstrap(self._home)
        return replace(
            default_cluster(self._settings, text, own_stack, environ_bundle=self._bundle), name=text
        )

    def of(self, name: str) -> KafkaCluster:
        """A cluster by its name; an empty one means the default, whose brokers need not be known.

        Raises:
            JobDefinitionError: The settings do not name it, or are wrong.
        """
        try:
            return self.named(name) if name else self.default
        except UsageError as error:
            raise JobDefinitionError(str(error)) from error

    def with_brokers(self, name: str) -> KafkaCluster:
        """As `of`, where brokers are needed.

        Raises:
            JobDefinitionError: The settings do not name it, or are wrong; or no brokers are known.
        """
        try:
            return self.named(name) if name else self.require_default()
        except UserError as error:
            raise JobDefinitionError(str(error)) from error


def reads_default(job: "Job") -> bool:
    """Whether a job reads topics of the default cluster."""
    return "" in map(cluster_of, job.topic_names)


def all_need_default(jobs: Sequence["Job"]) -> bool:
    """Whether each of the jobs reads a topic of the default cluster, or a table of one that needs it."""
    others, tables = list(jobs), set[str]()
    while needing := [job for job in others if reads_default(job) or not tables.isdisjoint(job.table_names)]:
        tables |= {target.name for job in needing for target in job.targets}
        others = [job for job in others if job not in needing]
    return not others
