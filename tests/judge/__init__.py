"""An outside judge: views kept by Headrace against the same SQL run by plain Spark."""
