"""``tilecore``: what is installed here, what the compiler makes of a program, how fast it runs."""

from __future__ import annotations

import sys
from typing import Any

from tilecore import __version__

try:
    import click
    from rich.console import Console
except ImportError as error:  # the command is installed with core, its libraries by an extra
    print(f"the tilecore command needs click and rich ({error}): pip install 'tilecore[cli]'",
          file=sys.stderr)  # fmt: skip
    raise SystemExit(1) from None

from tilecore.errors import TilecoreError


class _Commands(click.Group):
    """Shows tilecore's own errors as one message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except TilecoreError as error:
            raise click.ClickException(str(error)) from error


def make_console() -> Console:
    """Standard output; wide enough for the tables when it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tilecore")
def main() -> None:
    """One tile program, every kind of hardware."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def backends(as_json: bool) -> None:
    """List backends with their devices and toolchains, and why one cannot be used."""
    from tilecore.cli import backends as view

    reports = view.survey()
    if as_json:
        click.echo(view.as_json(reports))
    else:
        view.show(reports, make_console())


@main.command()
@click.option("--backend", help="Which backend; the best one present by default.")
def demo(backend: str | None) -> None:
    """Compile real kernels, run them on real input, check and time them."""
    from tilecore.cli import demo as view

    if not view.run(backend, make_console()):
        raise SystemExit(1)


@main.command()
@click.argument("place", metavar="FILE:NAME")
@click.option("--backend", help="Which backend; the best one present by default.")
@click.option("--arch", help="One of the backend's architectures.")
@click.option("--device", default="native", help="native or emulator.", show_default=True)
@click.option(
    "--stage",
    default="scheduled",
    show_default=True,
    help="tile, canonical, scheduled, lane, source, resources or model; or 'all'.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of a function that makes the program; repeat for several.",
)
def inspect(
    place: str,
    backend: str | None,
    arch: str | None,
    device: str,
    stage: str,
    settings: tuple[str, ...],
) -> None:
    """Show what the compiler makes of the tile program NAME in FILE."""
    from tilecore.cli import inspect as view

    program = view.load_program(place, settings)
    for text in view.stage_texts(program, stage, backend, arch, device):
        click.echo(text)


@main.command()
@click.argument("name", required=False)
@click.option("--backend", help="Which backend; the best one present by default.")
@click.option("--seconds", default=1.0, show_default=True, help="Time to spend on each kernel.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def bench(name: str | None, backend: str | None, seconds: float, as_json: bool) -> None:
    """Time a kernel of tilecore-kernels at its own sizes; all kernels without a NAME."""
    from tilecore.cli import bench as view

    rows = view.run(name, backend, seconds)
    if as_json:
        for row in rows:
            click.echo(view.as_json(row))
    else:
        view.show(rows, make_console())


if __name__ == "__main__":
    main()
