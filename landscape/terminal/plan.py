"""What a person sees of a plan: a row for each phase, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.machine.words import byte_size, duration
from landscape.planning import Plan


def print_plan(console: Console, found: Plan, remedies: Sequence[tuple[str, float]]) -> None:
    """Phases with bytes, operations and time; then the verdict."""
    config, ranks = found.config, found.config.ranks
    console.print(Text.assemble((f"{config.job}  ", "bold"), f"{config.model}, {found.costs.parameters:,} parameters"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("phase", overflow="fold")
    table.add_column("held on each rank" if ranks > 1 else "held", overflow="fold")
    for heading in ("bytes", "operations", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for phase in found.phases:
        held = ", ".join(f"{name} {byte_size(size)}" for name, size in phase.held.items())
        table.add_row(phase.name, held, byte_size(phase.bytes), f"{phase.flops:.1e}", duration(found.seconds(phase)))
    console.print(table)
    total = duration(sum(map(found.seconds, found.phases)))
    memory = byte_size(found.machine.memory)
    where = f"{ranks} ranks of {memory}" if ranks > 1 else f"a device of {memory}"
    console.print(f"{total} in all, at {found.machine.speed / 1e12:.3g}·10¹² operations a second in large products")
    if found.fits:
        console.print(f"fits: {byte_size(found.peak)} on {where}")
        return
    console.print(f"does not fit: {byte_size(found.peak)} on {where}")
    for words, size in remedies:
        console.print(f"  with {words}: {byte_size(size)}")
    if not remedies:
        console.print("  nothing here makes it fit: give devices with more memory, or a smaller model")
