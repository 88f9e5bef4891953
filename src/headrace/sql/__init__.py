"""From SQL text to statements and queries."""
