"""What stops idle sandboxes and removes old ones, their workspaces too."""
