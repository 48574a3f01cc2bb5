"""The executor's behaviour, on an engine in memory and, where shared, on a real one too."""
