"""Problems on the way to a provider: untrusted certificates, and proxies of the environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import asked

from sayso.errors import ConfigError, ModelError
from sayso.models import load_model

sys.path.insert(0, str(Path(__file__).parent.parent))

from https import Https, needs_openssl, untrusted

SPECS = ["anthropic:claude-sonnet-5-5", "openai:some-model"]
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture
def https(tmp_path: Path) -> Iterator[Https]:
    with untrusted(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.lower, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def failure(spec: str, url: str) -> ModelError:
    model = load_model(spec, {"base_url": url, "api_key": "sk-x", "retries": 1})
    with pytest.raises(ModelError) as caught:
        asked(model)
    return caught.value


@needs_openssl
@pytest.mark.parametrize("spec", SPECS)
def test_certificate_that_is_not_trusted_is_told_with_the_way_out(
    https: Https,
    spec: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "sayso")
    found = failure(spec, https.url)
    assert found.kind == "connection" and not found.retryable
    assert "certificate is not trusted" in str(found) and "SSL_CERT_FILE" in str(found)
    assert "self-signed" in caplog.text and "trying again" not in caplog.text
    monkeypatch.setenv("SSL_CERT_FILE", str(https.certificate))
    assert failure(spec, https.url).kind == "server"


@pytest.mark.parametrize("spec", SPECS)
def test_log_says_why_a_provider_was_not_reached(
    spec: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sayso")
    assert failure(spec, "http://127.0.0.1:1").kind == "connection"
    assert "ConnectionRefusedError" in caplog.text
    assert {r.name for r in caplog.records if "no connection" in r.message} == {"sayso.models"}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_stop_the_start(
    tmp_path: Path, spec: str, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        load_model(spec, {"api_key": "sk-x"})


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("proxy", ["ftp://me:pa55word@proxy.test", "http://me:pa55word@[::1"])
def test_proxy_that_is_none_stops_the_start_and_is_not_shown(
    spec: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigError, match="HTTPS_PROXY") as caught:
        load_model(spec, {"api_key": "sk-x"})
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize("spec", SPECS)
def test_socks_proxy_without_its_package_stops_the_start(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"pip install 'httpx2\[socks\]'"):
        load_model(spec, {"api_key": "sk-x"})
