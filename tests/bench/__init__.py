"""Benchmarks: ratios measured side by side, in one run, in interleaved rounds."""
