"""A URL as people may see it: where it leads to, without what must stay secret."""

from __future__ import annotations

import re

MASK = "***"
#: libpq's password, sslpassword and oauth_client_secret, and the two keys that serve instead of a password
SECRET_PARAMETER = re.compile(r"(?<=[?&])([^=&?]*(?:password|secret|scram_\w+_key)[^=&]*)=[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The password is replaced; for HTTP everything before the @ is, because a token may stand where the name does.

    The URL may be a wrong one, so that no parser is used: a password may hold / ? # and @, and ends at the last @.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:  # not a URL: a token, or settings in another form
        return MASK
    credentials, at, place = SECRET_PARAMETER.sub(rf"\1={MASK}", rest).rpartition("@")
    if at:
        name, colon, _ = credentials.partition(":")
        credentials = MASK if scheme.startswith("http") else f"{name}:{MASK}" if colon else name
    return f"{scheme}{separator}{credentials}{at}{place}"
