"""Records as Arrow columns, and Arrow rows as records."""
