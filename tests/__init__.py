"""The tests: pure, on the fake, on real processes, on real engines."""
