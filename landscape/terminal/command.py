"""How a job becomes a command: its options from its dataclass, progress while it runs, mistakes in one line.

torch and transformers load only when a job runs. Of several processes under torchrun the first one speaks.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer

from landscape.errors import LandscapeError, OptionError
from landscape.machine import interrupts

Printer = Callable[[Any, list[str], float], None]  # a console, what to note, seconds that it took
_RANK, _SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # as torchrun says
_PATIENCE = 3.0  # seconds: what is wrong, the first rank says as a rule, and torchrun then ends the others

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def job(
    name: str, config: type, shorter: str | None = None, models: bool = True, ranks: bool = False
) -> Callable[[Callable[..., Printer]], None]:
    """A command with the options of `config`: runs the job, and the printer that it returns when progress is over.

    `shorter` says what takes less time, where that is not fewer tokens; `models`, whether any is loaded; `ranks`,
    whether several processes can do it together.
    """

    def wrap(function: Callable[..., Printer]) -> None:
        def command(**options: Any) -> None:
            resolved = config(**options)
            if _SIZE > 1 and not ranks:
                raise OptionError(f"torchrun: landscape {name} is a job for one process; leave torchrun out")
            if models:
                _load_libraries()
            from rich.console import Console

            from landscape.terminal.progress import TerminalReporter

            if _RANK:  # the first one reports
                function(resolved, None)
                return
            started = time.monotonic()
            advice = {} if shorter is None else {"shorter": shorter}
            try:
                with interrupts.heard(), TerminalReporter(Console(stderr=True), **advice) as reporter:
                    printer = function(resolved, reporter)
            except KeyboardInterrupt:
                print("interrupted; the same command goes on where it stopped", file=sys.stderr)
                sys.exit(130)
            printer(Console(), reporter.notes, time.monotonic() - started)

        parameters = _parameters(config)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__doc__ = (function.__doc__ or "").replace(r"\b", "\b")  # click keeps lines after \b
        app.command(name)(command)

    return wrap


def _parameters(config: type) -> list[inspect.Parameter]:
    """A job's fields with type, default and help: what it is about first, then its own options, then those of all."""
    types = get_type_hints(config)
    named = [field for field in fields(config) if field.default is MISSING and field.default_factory is MISSING]
    options = [field for field in fields(config) if field not in named]
    own = [field for field in options if field.name in config.__annotations__]
    shared = [field for field in options if field.name not in config.__annotations__]
    parameters = []
    for field in named + own + shared:
        about: dict[str, Any] = {"help": field.metadata["help"]}
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.default is MISSING:
            kind = typer.Argument(show_default=False, **about)
        else:
            flag = [f"--{field.name.replace('_', '-')}"]  # named, or typer adds a --no- form to every switch
            kind = typer.Option(*flag, **about)
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=Annotated[types[field.name], kind],
            )
        )
    return parameters


def _load_libraries() -> None:
    """Load torch and transformers, and leave the terminal to our own progress: their errors show, their bars do not.

    Of what they make while they load nothing is garbage, and Python would spend a seventh of the time looking for it.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for name in ("torchao", "torch.utils._pytree"):  # transformers imports torchao where it is, for all models
        logging.getLogger(name).setLevel(logging.ERROR)
    if "transformers" not in sys.modules:
        gc.disable()
        for name in ("torch", "transformers"):
            import_module(name)
        gc.freeze()
        gc.enable()
    import_module("transformers").utils.logging.disable_progress_bar()


def run() -> None:
    """Run the command; a `LandscapeError` or a wrong option is one line on stderr and exit code 2."""
    atexit.register(gc.freeze)  # or Python would look through all of torch for garbage, to end a moment later
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except LandscapeError as error:
        if _RANK:
            time.sleep(_PATIENCE)
        sys.exit(_fail(str(error)))
    except KeyboardInterrupt:
        if not _RANK:
            raise
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error of typer's, whichever click it carries
            raise
        sys.exit(_fail(_said(error)))


def _said(error: Any) -> str:
    """What typer says of a wrong option; of a number that is none it says it without the value."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()  # pydantic's, from typer 0.29
    for kind, expected in (("int_", "a whole number"), ("float_", "a number")):
        if found and found[0]["type"].startswith(kind):
            return f"{error.param.opts[0]} {found[0]['input']}: expected {expected}"
    return error.format_message().replace("Value error, ", "")  # a choice's, left over by typer


def _fail(message: str) -> int:
    if message:
        print(f"landscape: {' '.join(message.split())}", file=sys.stderr)
    return 2
