"""What goes on beside the epochs: fold, merge, the clock, and a Spark that is replaced."""
