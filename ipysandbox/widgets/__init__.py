"""Widgets of sandboxes in the notebook's page."""
