"""Processes that need no pandas, and load none where it is installed."""

from importlib.abc import MetaPathFinder


class WithoutPandas(MetaPathFinder):
    """For `sys.meta_path`: in a process with it, pandas is not installed.

    Else pyarrow loads it when it first makes a scalar or an array of a Python value, to ask whether that is
    one of pandas': most of a second, and 60 MB.
    """

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("lakelog needs no pandas", name=fullname)
