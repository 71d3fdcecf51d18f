"""Records: read, decoded, masked, filtered, searched, exported, produced."""
