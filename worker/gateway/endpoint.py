"""How the address of a gateway is reached: directly or through a proxy, with TLS, with credentials.

`requests` reads the proxies, the certificates and a netrc from the environment, and the credentials from the URL.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import requests
from requests.utils import get_auth_from_url, requote_uri, select_proxy, urldefragauth
from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
from urllib3.util import Url, make_headers, parse_url
from urllib3.util.ssl_ import create_urllib3_context

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Endpoint:
    url: Url  # without credentials
    headers: Mapping[str, str]  # of every request
    ca_path: str  # a file or directory of certificates
    proxy: Url | None = None
    proxy_headers: Mapping[str, str] | None = None

    @property
    def _is_forwarded(self) -> bool:
        """Whether the proxy reads the requests. To a gateway with TLS it only opens a tunnel."""
        return self.proxy is not None and self.url.scheme == "http"

    def connect(self, timeout_seconds: float) -> HTTPConnection:
        target = self.proxy or self.url
        if target.scheme not in PORTS:
            raise ConnectionError("only HTTP proxies are supported")
        host, port = str(target.hostname), target.port or PORTS[target.scheme]
        if "https" in (self.url.scheme, target.scheme):
            connection: HTTPConnection = self._tls_connection(host, port, timeout_seconds)
        else:
            connection = HTTPConnection(host, port, timeout=timeout_seconds)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _tls_connection(self, host: str, port: int, timeout_seconds: float) -> HTTPSConnection:
        context = tls_context(self.ca_path)
        proxy_config = ProxyConfig(context, False, None, None)
        connection = HTTPSConnection(
            host, port, timeout=timeout_seconds, ssl_context=context, proxy=self.proxy, proxy_config=proxy_config
        )
        if self.proxy is not None and not self._is_forwarded:
            gateway_port = self.url.port or PORTS["https"]
            scheme = str(self.proxy.scheme)
            connection.set_tunnel(str(self.url.hostname), gateway_port, headers=self.proxy_headers, scheme=scheme)
        return connection

    def request_headers(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """The request line and the headers that are the same for every such request, without the empty line."""
        target = requote_uri((self.url.path or "").rstrip("/") + path)
        every = {**self.headers, **headers}
        if self._is_forwarded:
            target = f"{self.url.scheme}://{self.url.netloc}{target}"
            every |= self.proxy_headers or {}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
        return "\r\n".join(lines).encode("latin-1")


@cache
def tls_context(ca_path: str) -> ssl.SSLContext:
    """Raises OSError where the certificates cannot be read. The context verifies the gateway's certificate and name."""
    context = create_urllib3_context()
    is_directory = Path(ca_path).is_dir()
    context.load_verify_locations(None if is_directory else ca_path, ca_path if is_directory else None)
    return context


def find_endpoint(base_url: str) -> Endpoint:
    session = requests.Session()
    prepared = session.prepare_request(requests.Request("GET", base_url))
    settings = session.merge_environment_settings(str(prepared.url), {}, True, None, None)
    url = parse_url(urldefragauth(str(prepared.url)))
    verify = settings["verify"]
    ca_path = verify if isinstance(verify, str) else requests.utils.DEFAULT_CA_BUNDLE_PATH
    proxy = select_proxy(str(prepared.url), settings["proxies"])
    headers = {"Host": _host_header(url), **prepared.headers}
    if url.scheme == "https":
        with contextlib.suppress(OSError):  # each connection raises it again, and the job's row shows it
            tls_context(ca_path)
    if not proxy:
        return Endpoint(url, headers, ca_path)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    return Endpoint(url, headers, ca_path, parse_url(proxy), _proxy_headers(proxy))


def _host_header(url: Url) -> str:
    is_default_port = url.port in (None, PORTS.get(str(url.scheme)))
    return str(url.host) if is_default_port else f"{url.host}:{url.port}"


def _proxy_headers(proxy: str) -> dict[str, str]:
    user, password = get_auth_from_url(proxy)
    return {"Proxy-Authorization": make_headers(basic_auth=f"{user}:{password}")["authorization"]} if user else {}
