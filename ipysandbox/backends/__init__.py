"""Ways to isolate code: the contract (base) and one package per implementation."""
