"""Statements in SQL: which runs what, and the changes that INSERT, UPDATE and DELETE come to."""
