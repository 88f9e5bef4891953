"""Golden files: for each rule a readable text of views, changes, and the deltas that Spark says they make."""
