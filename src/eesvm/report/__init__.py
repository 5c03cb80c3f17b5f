"""Pictures and pages: what a model finds and why, as PNG, as one HTML file, or served on a local page."""
