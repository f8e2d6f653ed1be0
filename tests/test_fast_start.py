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


def test_uvicorn_without_its_command_line_is_whole_for_whoever_asks() -> None:
    code = (
        "import sys; from assent.server import _import_uvicorn; _import_uvicorn();"
        "import uvicorn, assent.listener;"
        "assert not {'uvicorn.main', 'click', 'multiprocessing'} & set(sys.modules);"
        "config, server = uvicorn.Config, uvicorn.Server;"
        "from uvicorn import run;"
        "assert uvicorn.main.name == 'main' and run is sys.modules['uvicorn.main'].run;"
        "assert uvicorn.Config is config and uvicorn.Server is server and uvicorn.__version__;"
        "assert not hasattr(uvicorn, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_uvicorn_that_is_there_stays_as_it_is() -> None:
    code = (
        "import sys, uvicorn; from assent.server import _import_uvicorn; _import_uvicorn();"
        "assert sys.modules['uvicorn'] is uvicorn and not hasattr(uvicorn, '__getattr__')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_garbage_collection_is_as_before_after_an_import() -> None:
    code = (
        "import gc; from assent import Agent; assert gc.isenabled();"
        "gc.disable(); from assent import serve; assert not gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_start_has_made_is_not_looked_at_again() -> None:
    code = (
        "import gc; from assent.garbage import keep_all, no_collecting;"
        "before = gc.get_freeze_count(); keep_all(); assert gc.get_freeze_count() > before;"
        "block = no_collecting(); block.__enter__(); assert not gc.isenabled();"
        "block.__exit__(None, None, None); assert gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
