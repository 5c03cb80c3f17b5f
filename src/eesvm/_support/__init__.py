"""What every room stands on: checks of arguments, files that appear whole, threads, tasks, memory, compiled kernels."""
