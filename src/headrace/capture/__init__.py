"""Where changes come from: each kind of source is read in a file of its own."""
