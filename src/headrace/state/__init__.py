"""What relations hold now: signed runs of rows, looked up by key and never scanned for a small change."""
