"""`strategos init` and `strategos data`: a look at a table, and a first workload."""
