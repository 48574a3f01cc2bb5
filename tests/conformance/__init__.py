"""One suite for every engine: what a user may rely on, wherever the sandboxes run."""
