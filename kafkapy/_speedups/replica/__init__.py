"""The fetchers of a follower: threads that copy partitions from their leaders."""
