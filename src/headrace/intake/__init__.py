"""From what a caller sends to a table's net change: values, identity, the table's contract, the overlay."""
