"""What one would use instead: other authors' methods, each one file and one row of the table."""
