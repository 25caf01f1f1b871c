"""A segment broker that speaks Kafka's wire protocol; it runs without Spark."""
