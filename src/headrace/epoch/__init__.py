"""One epoch, from the calls that wait to the commit: the loop, the batch, the work, the receipt."""
