"""A project folder: headrace.yml and SQL files that define tables, views and sources."""
