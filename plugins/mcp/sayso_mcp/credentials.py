"""The request for a token by Sayso itself, as the OAuth client of an MCP server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials of this service at the authorization server `issuer` (RFC 6749, section 4.4).

    The MCP server names the issuer of its tokens and the scopes that they need (RFC 9728); the
    credentials go to this issuer only. A token is requested when the server wants one, and again
    when it has expired.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)

    def auth(self, url: str) -> httpx2.Auth:
        """The authentication of each request to the server at `url`: it adds a token."""
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

        return ClientCredentialsOAuthProvider(
            url,
            _Kept(),
            self.client_id,
            self.client_secret,
            issuer=self.issuer,
        )


class _Kept:
    """Keeps a token in memory: a restarted service requests another one."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info
