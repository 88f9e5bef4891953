"""Spark's own query plans: read, rebuilt over small leaves, prepared once and executed many times."""
