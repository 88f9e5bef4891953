"""Which epochs are committed, and everything durable that follows from it."""
