"""The trusted process between a notebook and its sandboxes: relay, limits, meters, audit and control API."""
