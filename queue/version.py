"""The version of convertq that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("convertq")
except PackageNotFoundError:  # run from a checkout that was never installed
    VERSION = "unknown"
