"""Score tables in, thresholds and evidence out. Images, networks and files are no business of this package."""
