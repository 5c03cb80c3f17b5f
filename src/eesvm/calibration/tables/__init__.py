"""Score tables: .npz, .csv and parquet files in, checked tables out; calibrating one, and examples."""
