"""What the console knows about a cluster, and how it asks: clients, topics, groups, statistics, remote services."""
