"""What a comparison leaves behind: two CSV files, a picture, a table."""
