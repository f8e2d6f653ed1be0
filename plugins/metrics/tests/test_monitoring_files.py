"""The alerts and the dashboard in `deploy/monitoring` name metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sayso import Agent
from sayso.testing import Served, scripted
from sayso_metrics import Metrics

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"
ALERTS = (FOLDER / "alerts.yaml").read_text()
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
EXPRESSIONS = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]


def test_every_metric_that_they_name_exists(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted("fine")), [Metrics()])
    text = service.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (sayso_\w+) (\w+)$", text, re.M))
    known = set(kinds) | {
        f"{name}_{end}"
        for name, kind in kinds.items()
        if kind == "histogram"
        for end in ("bucket", "count", "sum")
    }
    named = set(re.findall(r"\bsayso_\w+", ALERTS + " ".join(EXPRESSIONS)))
    assert len(named) > 20
    assert named - known == set()


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not places & mine
        assert at["x"] + at["w"] <= 24
        places |= mine


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_alerts_and_expressions(tmp_path: Path) -> None:
    rules = ["groups:\n  - name: dashboard\n    rules:\n"]
    for number, expression in enumerate(EXPRESSIONS):
        plain = json.dumps(expression.replace("$__rate_interval", "5m"))
        rules.append(f"      - record: test:panel{number}\n        expr: {plain}\n")
    (tmp_path / "panels.yaml").write_text("".join(rules))
    for file in (FOLDER / "alerts.yaml", tmp_path / "panels.yaml"):
        done = subprocess.run(
            ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
