"""Masking: a secret is recognised in every encoding, in time proportional to the text."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import shlex
import textwrap
import time
from datetime import datetime
from urllib.parse import quote, quote_plus

import pytest

from sayso.wire.masking import mask
from sayso.wire.messages import PlatformContext

PASSWORD = """p4ss/w0rd+a=b&c<d>'e"$f~g? ü"""
BYTES = PASSWORD.encode()
ENCODED = {
    "percent": quote(PASSWORD, safe=""),
    "percent, with slashes": quote(PASSWORD),
    "percent, as forms do": quote_plus(PASSWORD),
    "percent, small": re.sub("%..", lambda found: found[0].lower(), quote(PASSWORD)),
    "hex": BYTES.hex(),
    "large hex": BYTES.hex().upper(),
    "html": html.escape(PASSWORD),
    "html of Go": html.escape(PASSWORD).replace("&#x27;", "&#39;"),
    "shell": shlex.quote(PASSWORD)[1:-1],
    "shell, by hand": PASSWORD.replace("'", r"'\''"),
    "shell, double": re.sub(r'([\\"$`])', r"\\\1", PASSWORD),
    "printf %q": re.sub(r"([^\w/+=.-])", r"\\\1", PASSWORD, flags=re.ASCII),
    "base64": base64.b64encode(BYTES).decode(),
    "base64url": base64.urlsafe_b64encode(BYTES).decode().rstrip("="),
    "Basic": base64.b64encode(b"me:" + BYTES).decode(),
    "Basic of another": base64.b64encode(b"bob:" + BYTES).decode(),
    "Basic of a third": base64.urlsafe_b64encode(b"alice:" + BYTES + b"!").decode(),
    "lines of base64": base64.encodebytes(b"some text before it, " + BYTES * 9).decode(),
    "indented lines": textwrap.indent(base64.encodebytes(b"a" * 30 + BYTES).decode(), "    "),
    "lines in JSON": json.dumps(base64.encodebytes(b"a" * 31 + BYTES).decode()),
    "lines of hex": "\n".join(textwrap.wrap(BYTES.hex(), 20)),
    "lines of Windows": "\r\n".join(textwrap.wrap(BYTES.hex(), 20)),
}


NEIGHBOURS = {
    "base64url": 3,
    "Basic": 7,
    "Basic of another": 9,
    "Basic of a third": 14,
    "lines of base64": 60,
    "indented lines": 43,
    "lines in JSON": 49,
}
"""The number of base64 characters that do not depend on the secret alone."""


@pytest.mark.parametrize("kind", ENCODED)
def test_a_secret_is_known_however_it_is_encoded(kind: str) -> None:
    context = PlatformContext.model_validate({"platform_token": PASSWORD})
    masked = mask(f"before\n<{ENCODED[kind]}>\nafter", context.secrets())
    assert masked.startswith("before\n<") and masked.endswith(">\nafter")
    left = masked[8:-7].replace("[secret]", "").replace("\\n", "")
    assert len("".join(left.split())) <= NEIGHBOURS.get(kind, 0)
    assert "[secret]" in masked
    assert mask(masked, context.secrets()) == masked


def test_a_short_secret_is_known_as_it_is_alone() -> None:
    context = PlatformContext.model_validate({"platform_token": "sw/rdf1"})
    assert mask("<sw/rdf1>", context.secrets()) == "<[secret]>"
    for text in (base64.b64encode(b"sw/rdf1").decode(), b"sw/rdf1".hex(), quote("sw/rdf1", "")):
        assert mask(text, context.secrets()) == text


def test_to_mask_an_output_in_all_forms_of_ten_secrets_takes_little_time() -> None:
    keys = [base64.b64encode(random.Random(n).randbytes(30)).decode() for n in range(10)]
    secrets = PlatformContext(aws_credentials={"keys": keys}).secrets()
    text = f"{datetime.now()} INFO some.module worker finished job 4711 in 12 ms\n" * 16_000
    start = time.process_time()
    assert mask(text, secrets) == text
    assert time.process_time() - start < 1


@pytest.mark.parametrize("piece", ["\\", "\\r", "\n", "\r", "\n \t", "\\n"])
def test_line_ends_are_looked_for_in_the_time_that_the_length_takes(piece: str) -> None:
    secrets = PlatformContext.model_validate({"platform_token": "tok-123456"}).secrets()
    text = piece * (2**20 // len(piece)) + "tok-\n123456"
    start = time.process_time()
    assert mask(text, secrets).endswith("[secret]")
    assert time.process_time() - start < 5
