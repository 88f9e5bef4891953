"""Changefeeds: the changes of a relation, in order, to where they are needed."""
