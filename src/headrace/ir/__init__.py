"""The operators that a view is made of."""
