"""Run commands written by language models in docker containers, where they can do no harm."""
