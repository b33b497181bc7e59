"""Stands in for a command of a block that is not run here: parses what it is given, as the command would.

`landscape` parses its options, `make` says what it would do and that is rehearsed, `torchrun` and `srun` pass on; of
`python` there must be the file or module. The others (Slurm's, Ray's, the system's) do nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path


def landscape(arguments: list[str]) -> int:
    """Parse the options of a command of the suite."""
    import typer

    from landscape import cli
    from landscape.terminal.command import app

    assert cli.main
    name, *rest = arguments
    command = typer.main.get_command(app).commands.get(name)  # type: ignore[attr-defined]
    if command is None:
        print(f"landscape {name}: no such command")
        return 2
    command.make_context(name, rest)
    return 0


def torchrun(arguments: list[str]) -> int:
    """Parse its options; then `-m landscape` with the rest."""
    from torch.distributed.run import get_args_parser

    options = get_args_parser().parse_args(arguments)
    return python(["-m", options.training_script, *options.training_script_args] if options.module else [])


def python(arguments: list[str]) -> int:
    """There must be such a file or module; `-m landscape` is parsed."""
    while arguments and arguments[0] in ("-W", "-u"):
        arguments = arguments[2 if arguments[0] == "-W" else 1 :]
    if arguments[:2] == ["-m", "landscape"]:
        return landscape(arguments[2:])
    if arguments[:1] == ["-m"]:
        return 0 if importlib.util.find_spec(arguments[1]) else 1
    return 0 if arguments and Path(arguments[0]).is_file() else 1


def make(arguments: list[str]) -> int:
    """Rehearse what it says it would do."""
    path = os.pathsep.join(os.environ["PATH"].split(os.pathsep)[1:])
    said = subprocess.run(["make", "-n", *arguments], capture_output=True, text=True, env=os.environ | {"PATH": path})
    if said.returncode:
        print(said.stderr)
        return said.returncode
    return subprocess.run(
        ["bash", "-euo", "pipefail"], input=said.stdout.replace(".venv/bin/", ""), text=True
    ).returncode


def srun(arguments: list[str]) -> int:
    """What it would start."""
    while arguments and re.match("-", arguments[0]):
        arguments = arguments[1:]
    return subprocess.run(arguments).returncode


def main() -> int:
    """Rehearse one command."""
    known = {"landscape": landscape, "torchrun": torchrun, "python": python, "make": make, "srun": srun}
    name, *arguments = sys.argv[1:]
    if name == "scontrol":
        print("node1")
    try:
        return known[name](arguments) if name in known else 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        print(f"{name} {' '.join(arguments)}: {error.format_message()}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
