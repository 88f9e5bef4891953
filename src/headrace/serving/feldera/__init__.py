"""What the public `feldera` Python client asks of a server, answered by a home."""
