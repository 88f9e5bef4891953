"""CREATE, REPLACE, ALTER and DROP as epochs of their own, and what a home holds when it is opened again."""
