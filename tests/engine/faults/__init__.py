"""What happens when the engine, a container or a caller fails at the worst moment."""
