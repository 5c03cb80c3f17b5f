"""Shared helpers that every room may use: checks of arguments, files that appear whole, threads, tasks, kernels."""
