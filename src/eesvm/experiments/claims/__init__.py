"""What the paper claims, what was measured, and verdicts by stated rules."""
