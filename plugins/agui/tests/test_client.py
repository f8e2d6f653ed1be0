"""AG-UI's own client, in Node, against a service: the newest, and the one used by CopilotKit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from agui_world import Start, deletion

from npm import ran
from slow import few

SCRIPT = Path(__file__).parent / "agui_client.mjs"
PACKAGES = ("@ag-ui/client@1.0.0", "older@npm:@ag-ui/client@0.0.59")


@pytest.mark.parametrize("client", few(["@ag-ui/client", "older"], "@ag-ui/client"))
def test_the_client_approves_and_rejects_to_the_end(start: Start, client: str) -> None:
    world = start(
        *(deletion("a"), "It is gone.", "Welcome."),
        *(deletion("a"), "Then not.", "Welcome."),
    )
    url = f"{world.service.url}/agui"
    assert ran(SCRIPT, PACKAGES, CLIENT=client, URL_OF_AGENT=url) == "ok\n"
    assert world.deleted == ["a"]
