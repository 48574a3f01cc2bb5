"""Pure functions: no engine, no process, no clock, no network."""
