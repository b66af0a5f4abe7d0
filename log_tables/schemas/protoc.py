"""protoc, as a process of its own: `python -P -m log_tables.schemas.protoc DIRECTORY SECONDS OPTION...`

The files in the directory may be anybody's, and names such as `re.py` may be among them. So Python has read
all that it needs before it goes there, and finds no modules any more after that.
"""

import os
import resource
import sys
from importlib.resources import files

from log_tables.limits import PROTO_COMPILE_MAX_BYTES, PROTO_COMPILED_MAX_BYTES


def main() -> None:
    """Compile, and exit as protoc does. Whatever it writes is less than PROTO_COMPILED_MAX_BYTES."""
    from grpc_tools import protoc  # of an extra, so that the module itself can be imported without it

    root, seconds, *options = sys.argv[1:]
    include = os.fspath(files("grpc_tools") / "_proto")  # type: ignore[call-overload]
    for bound, most in (
        (resource.RLIMIT_AS, PROTO_COMPILE_MAX_BYTES),
        (resource.RLIMIT_FSIZE, PROTO_COMPILED_MAX_BYTES),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(bound, (most, most))
    os.chdir(root)
    sys.path.clear()
    sys.exit(protoc.main(["protoc", "-I.", f"-I{include}", *options]))


if __name__ == "__main__":
    main()
