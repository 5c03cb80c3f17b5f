"""Score tables in, thresholds and a proof out. Images and networks are never imported here."""
