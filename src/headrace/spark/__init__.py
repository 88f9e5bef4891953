"""The Spark of a home: Java, its jars, the process that runs it, its sessions."""
