"""Databases followed by Debezium's connectors in a process of their own, without Kafka."""
