"""What may leave a sandbox: cleaned outputs and values."""
