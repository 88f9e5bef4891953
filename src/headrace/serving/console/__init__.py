"""The console: web pages at the server's root, and what they read."""
