"""Has libraries keep to the sandbox's share of a card's memory by themselves, from the moment that code imports them.

A library that asks for no more than its share raises its own "out of memory", which code can handle; whoever takes more
is ended from outside. Nothing is imported here that the code did not import. JAX reads its share from the environment.
"""

from __future__ import annotations

from typing import Any

from .after_import import after_import


def prepare(fraction: float, most: list[int]) -> None:
    """``fraction``: the share of each card's memory; ``most``: the same in bytes, a card each."""

    def torch(module: Any) -> None:
        def share() -> None:
            for number in range(module.cuda.device_count()):
                module.cuda.set_per_process_memory_fraction(fraction, number)

        # Once CUDA starts, which it does at its first use: setting it now would start it.
        module.cuda._lazy_call(share)

    def tensorflow(module: Any) -> None:
        for card, size in zip(module.config.list_physical_devices("GPU"), most, strict=False):
            limited = module.config.LogicalDeviceConfiguration(memory_limit=size >> 20)  # in MiB
            module.config.set_logical_device_configuration(card, [limited])

    after_import({"torch": torch, "tensorflow": tensorflow})
