"""The data API: rows of a relation by key, index and page, with their epoch."""
