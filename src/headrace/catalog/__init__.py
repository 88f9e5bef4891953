"""What relations there are: tables, views and sources as one value, the ids of their columns, and how one is made."""
