"""Reading for others: queries in processes of their own, and reads that need no Spark."""
