"""What several tests share: slow reference versions, strategies, small data, and ways to talk to a server."""
