"""`[auth] scheme = "jwt"`: callers prove their identity by tokens of an identity provider.

The settings are `[auth.jwt]`, which the core reads (design, section 6, "People").
"""

from collections.abc import Mapping

from sayso import Host, Plugin, Principal, hookimpl
from sayso_jwt.keys import Keys
from sayso_jwt.tokens import Expected, Tokens

__all__ = ["Jwt"]


class Jwt(Plugin):
    """Names the caller by the bearer token; active where `auth.scheme` is "jwt"."""

    name = "jwt"
    active_by_default = False
    _tokens: Tokens | None = None

    @hookimpl
    def register_routes(self, host: Host) -> None:
        """No routes; raises ConfigError if there are neither keys nor an address to fetch them
        from."""
        if host.config.auth.scheme == "jwt":
            self._made(host)

    @hookimpl
    async def authenticate(self, headers: Mapping[str, str], host: Host) -> Principal | None:
        """The principal whose token the `Authorization` header carries; None without a bearer
        token. Raises Unauthenticated for an invalid token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or host.config.auth.scheme != "jwt":
            return None
        return await self._made(host).principal(token.strip())

    def _made(self, host: Host) -> Tokens:
        if self._tokens is None:
            config, said = host.config, host.config.auth.jwt
            where = said.jwks or ""
            is_url = "://" in where
            keys = Keys(where if is_url else config.path("auth.jwt.jwks", where))
            # The core has checked that scheme "jwt" has both.
            assert said.issuer and said.audience
            claims = (said.name_claim, said.groups_claim, said.tenant_claim)
            self._tokens = Tokens(Expected(said.issuer, said.audience, *claims), keys)
        return self._tokens
