"""The alert rules and the dashboard: everything that they ask for is something that the daemon tells."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml
from manifests import KUBERNETES, read
from prometheus_client.parser import text_string_to_metric_families

from nls_scheduler.core.model.state import NodeState
from nls_scheduler.views.metrics import REASONS, Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

MONITORING = KUBERNETES / "components" / "monitoring"
RULES = MONITORING / "alert_rules.yaml"
SEVERITIES = {"critical", "warning", "info"}
# Prometheus's own, and DCGM's exporter, which has its names from NVIDIA.
OTHERS = {"up", "DCGM_FI_DEV_GPU_UTIL"}
# What only a daemon of a cluster tells.
# Grafana puts durations in their place.
VARIABLES = {"$__rate_interval": "5m", "$__interval": "1m", "$node": ".*"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def dashboard() -> dict[str, Any]:
    return dict(json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8")))


def panels() -> list[dict[str, Any]]:
    return list(dashboard()["panels"])


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel.get("targets", ()))


def parsed(query: str) -> list[Any]:
    """The selectors of a query. Raises ValueError for what is no PromQL."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    selectors: list[Any] = []

    def collect(node: Any) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            selectors.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)

    promql_parser.walk(promql_parser.parse(query), collect)
    assert selectors
    return selectors


@cache
def told() -> dict[str, set[str]]:
    """Every sample's name that a daemon tells, with the labels' names; those of a cluster where its driver is there."""
    metrics = Metrics(NodeState)
    if importlib.util.find_spec("nls_scheduler.kubernetes_driver") is not None:
        from nls_scheduler.kubernetes_driver.held_starts import HeldStarts
        from nls_scheduler.kubernetes_driver.vacating import ClusterMetrics, Vacating

        ages: dict[str, float | None] = {"pods": 0.0, "nodes": 0.0, "bindrequests": 0.0, "podresources": 0.0}
        writer = SimpleNamespace(written=0, lost=0)
        metrics.register(ClusterMetrics(NodeState, dict, lambda: ages, Vacating(), writer))
        metrics.register(HeldStarts(writer))
    families = list(metrics._registry.collect())
    samples: dict[str, set[str]] = {}
    for family in families:
        # A family without a sample at the moment has a name all the same.
        samples.setdefault(family.name + ("_total" if family.type == "counter" else ""), set())
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


def test_the_rules_of_the_operator_are_those_of_the_rule_file() -> None:
    (manifest,) = read(MONITORING / "prometheus_rule.yaml")
    assert manifest["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


def test_every_alert_says_what_happened_and_where() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 10
    for rule in rules():
        assert rule["labels"]["severity"] in SEVERITIES
        assert "{{ $labels.node }}" in rule["annotations"]["summary"], rule["alert"]
        assert "for" not in rule or re.fullmatch(r"\d+[smh]", rule["for"])


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_is_promql_and_asks_for_what_is_told(query: str) -> None:
    for selector in parsed(query):
        name = selector.name
        if name in OTHERS:
            continue
        assert name in told(), name


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_selects_by_labels_and_values_that_there_are(query: str) -> None:
    samples = told()
    text = Metrics(NodeState).text().decode()
    buckets = {s.labels["le"] for f in text_string_to_metric_families(text) for s in f.samples if "le" in s.labels}
    for selector in parsed(query):
        for matcher in selector.matchers.matchers:
            if matcher.name == "le":
                assert matcher.value in buckets
            elif matcher.name == "reason":
                assert matcher.value in REASONS
            elif matcher.name not in ("node", "job", "UUID") and selector.name in samples:
                assert matcher.name in samples[selector.name], (selector.name, matcher.name)


def test_what_is_no_query_is_noticed() -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed("sum by (node (nls_workloads)")
    assert "nls_no_such_metric" not in told()


def test_prometheus_itself_loads_the_rules_and_its_alerts_fire() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool (Debian's package prometheus) is not on the PATH; each query was parsed all the same")
    for what in (
        ["check", "rules", str(RULES)],
        ["test", "rules", str(Path(__file__).with_name("alert_rules_test.yaml"))],
    ):
        done = subprocess.run(["promtool", *what], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_dashboard_that_grafana_can_import() -> None:
    written = dashboard()
    assert written["uid"] == "nls-scheduler"
    assert "id" not in written, "an id belongs to one Grafana"
    assert written["schemaVersion"] >= 39
    variables = {variable["name"]: variable for variable in written["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["node"]["definition"] == variables["node"]["query"]["query"]


def test_every_panel_has_a_place_and_a_number_of_its_own() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_every_panel_asks_the_chosen_data_source_and_has_a_unit() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == source
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
        assert all(target["datasource"] == source for target in panel["targets"])
