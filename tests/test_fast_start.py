"""The parts that a start leaves out make no difference to the service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

APP = """
import json, sys
from sayso import create_app

def agent(messages, context):
    return "fine"

app = create_app(agent, state_dir=sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


def test_nothing_of_a_plugin_is_loaded_before_it_is_configured(tmp_path: Path) -> None:
    command = [sys.executable, "-c", APP, str(tmp_path)]
    modules = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    loaded = {name.split(".")[0] for name in modules if name.startswith("sayso_")}
    assert loaded == {"sayso_v1", "sayso_v2"}
    assert not {"httpx2", "anthropic", "psycopg", "sayso.models.faults"} & set(modules)


def test_uvicorn_without_its_command_line_is_whole_for_whoever_asks() -> None:
    code = (
        "import sys; from sayso.server import _import_uvicorn; _import_uvicorn();"
        "import uvicorn, sayso.listener.listener;"
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
        "import sys, uvicorn; from sayso.server import _import_uvicorn; _import_uvicorn();"
        "assert sys.modules['uvicorn'] is uvicorn and not hasattr(uvicorn, '__getattr__')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_garbage_collection_is_as_before_after_an_import() -> None:
    code = (
        "import gc; from sayso import Agent; assert gc.isenabled();"
        "gc.disable(); from sayso import serve; assert not gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_start_has_made_is_not_looked_at_again() -> None:
    code = (
        "import gc; from sayso.garbage import keep_all, no_collecting;"
        "before = gc.get_freeze_count(); keep_all(); assert gc.get_freeze_count() > before;"
        "block = no_collecting(); block.__enter__(); assert not gc.isenabled();"
        "block.__exit__(None, None, None); assert gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
