"""Pictures and pages: what a model finds and why, as PNG, as one HTML file, or served by `eesvm serve`."""
