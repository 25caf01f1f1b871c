"""The workload of the Kafka paper beside other brokers: `make bench-queues`, see `__main__`."""
