"""Statistics over seeds, tables, pictures, and verdicts on the papers' claims."""
