"""Judges addresses of the web by what a project lists: `allow_http` for nodes, `allow_urls` of `[files]` for files.

1. An entry is the beginning of an address: scheme, host and port are the same, and the path lies at or below its own.
   No redirect leads anywhere else.
2. What a host leads to is looked at after its name was resolved, and the connection goes to that very address, so that
   a second look at the name cannot give another one.
3. An address that is not public (private, link-local, of this machine) is refused, unless the entry names it: as the
   host (`http://127.0.0.1:8000/`, `http://localhost/`), or behind the address (`http://crm.intern/ 10.0.0.0/8`).
4. Behind the address an entry may also name environment variables whose values may be sent there as headers
   (`https://api.example.com/v1/ API_TOKEN`).

One rule for both; it asks no server, and resolves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

Origin = tuple[str, str, int]
"""Scheme, host and port."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UP: Final = re.compile(r"(?=[.\s\x00]*?\.\.)[.\s\x00]++(;.*)?", re.DOTALL)
"""A part of a path that some server takes for the folder above."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_EMBEDDED: Final = IPv6Network("::/96")


class RefusedAddressError(ValueError):
    """An address that is not asked; the message says why."""


class AddressRule(NamedTuple):
    """An entry of a project's list."""

    beginning: str
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that are not public and that its host may lead to."""
    variables: tuple[str, ...] = ()
    """Environment variables whose values may be sent there."""


def read_rule(entry: str) -> AddressRule | None:
    """The rule that an entry says; None for what is none.

    >>> read_rule("https://crm.intern/v1/ CRM_TOKEN 10.0.0.0/8").variables
    ('CRM_TOKEN',)
    >>> read_rule("crm.intern"), read_rule("https://crm.intern/ not-this")
    (None, None)
    """
    beginning, *words = entry.split() or [""]
    if _parts(beginning) is None or leads_elsewhere(beginning):
        return None
    variables = [each for each in words if _VARIABLE.fullmatch(each)]
    try:
        networks = [ip_network(each) for each in words if each not in variables]
    except ValueError:
        return None
    return AddressRule(beginning, tuple(networks), tuple(variables))


def allowed_url(url: str, allowed: Sequence[str]) -> AddressRule | None:
    """The first rule that allows an address; None where none does.

    >>> rules = ("https://files.example.com/invoices/",)
    >>> allowed_url("https://files.example.com/invoices/1.pdf", rules).beginning
    'https://files.example.com/invoices/'
    >>> [allowed_url(each, rules) for each in (
    ...     "http://files.example.com/invoices/1.pdf", "https://files.example.com.evil.org/invoices/1.pdf",
    ...     "https://files.example.com/invoices/../x", "https://files.example.com/invoices/%2e%2e/x",
    ...     "https://me@files.example.com/invoices/1", "https://files.example.com/other")]
    [None, None, None, None, None, None]
    """
    url_parts = _parts(url)
    if url_parts is None or leads_elsewhere(url):
        return None
    for each in allowed:
        rule = read_rule(each)
        rule_parts = None if rule is None else _parts(rule.beginning)
        if rule is not None and rule_parts is not None and rule_parts[0] == url_parts[0]:
            folder = rule_parts[1].rstrip("/")
            if url_parts[1] == rule_parts[1] or url_parts[1].startswith(f"{folder}/"):
                return rule
    return None


def leads_elsewhere(url: str) -> bool:
    """Tells whether an address may be read as that of another place: it has a part `..`, however that is written, or a
    backslash.

    >>> [leads_elsewhere(f"https://a.example/v1/{each}") for each in ("main...dev", "%2e%2e/x", "..#/x", "a%2F..%2Fb")]
    [False, True, True, True]
    """
    path = re.split(r"[?#]", url, maxsplit=1)[0]
    return "\\" in url or any(_UP.fullmatch(each) for each in re.split(r"[/\\]", unquote(unquote(path))))


def origin_of(url: str) -> Origin | None:
    """Scheme, host and port of an address; None for what is no address of the web.

    >>> origin_of("https://Api.example.com/v1"), origin_of("ftp://example.com")
    (('https', 'api.example.com', 443), None)
    """
    parts = _parts(url)
    return None if parts is None else parts[0]


def check_addresses(host: str, addresses: Sequence[str], rule: AddressRule) -> str:
    """The address to connect to, of those that a host has; a `RefusedAddressError` where one of them is refused."""
    if not addresses:
        raise RefusedAddressError(f"'{host}' has no address")
    if host == "localhost" or _is_address(host):
        return addresses[0]  # The rule names it.
    for each in addresses:
        if not _is_public(each) and not any(_in(each, network) for network in rule.networks):
            raise RefusedAddressError(
                f"'{host}' leads to the private address {each}: list that address itself, "
                f"or name its network behind the entry ('{rule.beginning} {each}')"
            )
    return addresses[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _in(address: str, network: IPv4Network | IPv6Network) -> bool:
    ip = ip_address(address.partition("%")[0])
    return ip.version == network.version and ip in network


def _is_public(text: str) -> bool:
    """Tells whether an address is one of the public internet, also of one that is packed in another.

    >>> [_is_public(each) for each in ("93.184.216.34", "10.1.2.3", "::1", "::ffff:127.0.0.1", "169.254.169.254")]
    [True, False, False, False, False]
    >>> [_is_public(each) for each in ("64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "fe80::1%eth0", "0.0.0.0")]
    [False, False, False, False, False]
    """
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and (address in _NAT64 or address in _EMBEDDED):
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        address = inner or address
    return address.is_global and not address.is_multicast


def _parts(url: str) -> tuple[Origin, str] | None:
    """Scheme, host and port, and the path; None for what is no address of the web."""
    try:
        split = urlsplit(url)
        port = split.port or {"https": 443, "http": 80}[split.scheme]
    except (ValueError, KeyError):
        return None
    if split.username is not None or split.password is not None or not split.hostname:
        return None
    if any(ord(each) <= 0x20 or ord(each) > 0x7E for each in url):
        return None
    return (split.scheme, split.hostname, port), split.path or "/"
