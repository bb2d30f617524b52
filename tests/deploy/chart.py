"""The chart: rendered by Helm's engine, and its objects checked by schemas."""

import pathlib

import helm_python as helm
import jsonschema
import kubernetes_validate
import yaml

import crds

ROOT = pathlib.Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/pmuscope"

# The oldest that the chart admits, and the newest whose schemas are there.
KUBERNETES = ["1.30", "1.37"]


class Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, as Kubernetes does."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.YAMLError(f"twice in one mapping: {twice}, {node.start_mark}")
        return super().construct_mapping(node, deep)


def texts(values=None, name="pmuscope", namespace="monitoring"):
    """The text of each template that makes objects, in the order of their names."""
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(values, name=name, namespace=namespace)
    templates = sorted(rendered.items())
    return [text for path, text in templates if path.endswith(".yaml") and text.strip()]


def render(values=None, **release):
    """All objects, each of them valid."""
    objects = []
    for text in texts(values, **release):
        for item in yaml.load_all(text, Strict):
            if item is not None:
                validate(item)
                objects.append(item)
    return objects


def validate(item):
    """Raises where no schema is known, or the object does not fit it."""
    version = item["apiVersion"]
    if (version, item["kind"]) in crds.SCHEMAS:
        jsonschema.validate(item, crds.SCHEMAS[version, item["kind"]])
        return
    for version in KUBERNETES:
        kubernetes_validate.validate(item, version, strict=True)


def one(objects, kind):
    """The only object of a kind."""
    found = [item for item in objects if item["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]
