"""What a start leaves out changes nothing that is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

APP = """
import json, sys
{first}
from assent import create_app

def agent(messages, context):
    return "fine"

app = create_app(agent, state_dir=sys.argv[1], docs=True)
print(json.dumps({{"document": app.openapi(), "modules": sorted(sys.modules)}}))
"""


def started(folder: Path, first: str) -> dict[str, object]:
    """The OpenAPI document and the modules of a process that has made its app."""
    command = [sys.executable, "-c", APP.format(first=first), str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_document_is_the_same_when_fastapi_builds_its_models_late(tmp_path: Path) -> None:
    late = "from assent.server import _import_framework; _import_framework()"
    deferred = started(tmp_path, late)["document"]
    assert deferred == started(tmp_path, "import fastapi")["document"]
    assert "/api/chat" in json.dumps(deferred)


def test_late_building_is_for_fastapi_s_own_models_alone(tmp_path: Path) -> None:
    code = (
        "from assent.server import _import_framework; _import_framework();"
        "from pydantic import BaseModel; from assent.messages import ChatRequest;"
        "from fastapi.openapi.models import OpenAPI;"
        "assert 'defer_build' not in BaseModel.model_config | ChatRequest.model_config;"
        "assert ChatRequest.__pydantic_complete__;"
        "class_ = type('Late', (BaseModel,), {}); assert class_.__pydantic_complete__;"
        "info = {'title': 'x', 'version': '1'};"
        "assert OpenAPI.model_validate({'openapi': '3.1.0', 'info': info})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rules_of_the_offline_model_are_loaded_only_for_an_agent_that_asks_it(
    tmp_path: Path,
) -> None:
    modules = started(tmp_path, "")["modules"]
    assert isinstance(modules, list)
    assert "assent.models.offline" in modules
    assert "assent.models.offline.answering" not in modules
