"""deploy/kubernetes.yaml: the chart with its default values, for who does not use Helm. Run, it
writes the file."""

import chart

FILE = chart.ROOT / "deploy/kubernetes.yaml"

HEAD = """\
# pmuscope on every node: `kubectl apply -f kubernetes.yaml`. Made by `cargo xtask deploy --write`
# from the chart with its default values: change deploy/helm/pmuscope. docs/reference/chart.md says
# what to set; the image must be known to the nodes under the name below.
---
apiVersion: v1
kind: Namespace
metadata:
  name: pmuscope
  labels:
    # Capabilities, hostPID and paths of the node are what the level `privileged` admits.
    pod-security.kubernetes.io/enforce: privileged
"""


def text():
    """What the file should hold."""
    parts = chart.texts(namespace="pmuscope")
    # Nothing here is managed by Helm.
    parts = [part.replace('managed-by: Helm', 'managed-by: kubectl') for part in parts]
    return HEAD + "".join(f"---\n{part.strip()}\n" for part in parts)


if __name__ == "__main__":
    FILE.write_text(text())
