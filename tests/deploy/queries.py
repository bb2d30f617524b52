"""The queries of rules and dashboards."""

import json

import yaml

import chart

RULES = sorted((chart.CHART / "prometheus").glob("*.yaml"))
DASHBOARDS = sorted((chart.CHART / "grafana").glob("*.json"))


def rules():
    """Each rule."""
    files = [yaml.safe_load(path.read_text()) for path in RULES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def dashboards():
    """Each dashboard by the name of its file."""
    return {path.name: json.loads(path.read_text()) for path in DASHBOARDS}


def expand(query):
    """A panel's query as Grafana sends it with `All` chosen everywhere."""
    for variable in ("instance", "namespace", "pod"):
        query = query.replace(f"${variable}", ".*")
    return query.replace("$__rate_interval", "5m")


def panels():
    """(dashboard, title of the panel, query) of each target."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                yield name, panel["title"], expand(target["expr"])
