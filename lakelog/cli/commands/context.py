"""`lakelog context`: named gateways, of which one is current."""

from typing import Annotated

import typer

from lakelog.cli.common import CommandGroup, Json, console, print_json, print_table
from lakelog.cli.contexts import LOGIN, Contexts, chosen, load, save
from log_tables.errors import InvalidArgument

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("set")
def set_context(
    name: Name,
    url: Annotated[str | None, typer.Option(help="The gateway.")] = None,
    data: Annotated[str | None, typer.Option(help="The root of its tables.")] = None,
    api_key_file: Annotated[str | None, typer.Option(help="A file with an API key.")] = None,
    ca_file: Annotated[str | None, typer.Option(help="The authorities to trust, in PEM.")] = None,
    certfile: Annotated[str | None, typer.Option(help="The certificate of the client, in PEM.")] = None,
    keyfile: Annotated[str | None, typer.Option(help="Its key, in PEM.")] = None,
) -> None:
    """Make a context, or change what is named of it; an empty value removes one. It holds no secret."""
    import os.path

    from lakelog.client.request import checked_url

    if not name.strip():
        raise InvalidArgument("a context has a name; write one")
    files = {"api_key_file": api_key_file, "ca_file": ca_file, "certfile": certfile, "keyfile": keyfile}
    given = {"url": url and checked_url(url), "data": _absolute(data)}
    given |= {key: file and os.path.abspath(file) for key, file in files.items()}
    known = load()
    made = {
        **known.by_name.get(name, {}),
        **{key: value for key, value in given.items() if value is not None},
    }
    made = {key: value for key, value in made.items() if value}
    if not made:
        raise InvalidArgument(f"context {name!r} would say nothing; name its --url, or its --data")
    if "url" not in made and any(key in made for key in LOGIN):
        raise InvalidArgument(f"context {name!r} would log in at no gateway; name its --url, too")
    save(Contexts(known.current, {**known.by_name, name: made}))
    console().print(f"set context {name}; use it with `lakelog context use {name}`")


@app.command()
def use(name: Name) -> None:
    """Make a context current: commands that name no gateway ask the one of the context."""
    known = load()
    found = known.named(name)
    save(known._replace(current=name))
    console().print(f"using context {name}: {found.get('url') or found.get('data')}")


@app.command()
def leave() -> None:
    """Make no context current."""
    save(load()._replace(current=""))
    console().print("using no context")


@app.command("list")
def list_contexts(json: Json = False) -> None:
    """List the contexts; a star is at the one that commands use."""
    known, current = load(), chosen()
    if json:
        print_json(
            [{"name": name, "current": name == current, **each} for name, each in known.by_name.items()]
        )
        return
    rows = [
        ("*" if name == current else "", name, each.get("url"), each.get("data"), each.get("api_key_file"))
        for name, each in sorted(known.by_name.items())
    ]
    print_table(("", "context", "url", "data", "api key file"), rows)


@app.command()
def remove(name: Name) -> None:
    """Remove a context; its gateway and its files stay."""
    known = load()
    known.named(name)
    rest = {each: found for each, found in known.by_name.items() if each != name}
    save(Contexts("" if known.current == name else known.current, rest))
    console().print(f"removed context {name}")


def _absolute(data: str | None) -> str | None:
    """A directory by its whole path, as commands run elsewhere; a URL as it is."""
    import os.path

    return os.path.abspath(data) if data and "://" not in data else data
