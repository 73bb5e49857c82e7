"""The rows of a database: a query's answers, kept as data files."""
