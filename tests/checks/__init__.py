"""Checks of what must outlive a crash: written once as initialize, manipulate, validate, and run in every scenario."""
