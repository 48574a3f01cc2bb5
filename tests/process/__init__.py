"""Real processes, guest scripts under real shells, no engine."""
