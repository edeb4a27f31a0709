"""Reports of a comparison: two csv files, a picture, a table."""
