"""`headrace serve`: a home over HTTP, one file per group of routes."""
