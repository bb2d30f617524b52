"""What the custom resources that the chart makes may hold: the fields that it uses, with their types
and limits. A field that is not here is refused, so that a misspelt one is found.

Sources: prometheus-operator, Documentation/api-reference/api.md (PodMonitor, ServiceMonitor,
PrometheusRule of monitoring.coreos.com/v1, with RelabelConfig and Rule); openshift/api,
security/v1/types.go (SecurityContextConstraints).
"""

STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
STRINGS = {"type": "array", "items": STRING}
LABELS = {"type": "object", "additionalProperties": STRING}
# Durations of the monitoring group.
DURATION = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}


def record(required=(), **properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def several(items):
    return {"type": "array", "items": items}


def resource(version, kind, **fields):
    metadata = record(["name"], name=STRING, namespace=STRING, labels=LABELS, annotations=LABELS)
    return record(
        ["apiVersion", "kind", "metadata", *fields],
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        **fields,
    )


RELABELING = record(
    sourceLabels=several({"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}),
    separator=STRING,
    targetLabel=STRING,
    regex=STRING,
    modulus={"type": "integer"},
    replacement=STRING,
    action={
        "enum": [
            *["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep"],
            *["lowercase", "uppercase", "keepequal", "dropequal"],
        ]
    },
)
SECRET_KEY = record(["key"], key=STRING, name=STRING, optional=BOOLEAN)
SECRET_OR_CONFIG_MAP = record(secret=SECRET_KEY, configMap=SECRET_KEY)
TLS = record(
    ca=SECRET_OR_CONFIG_MAP,
    cert=SECRET_OR_CONFIG_MAP,
    keySecret=SECRET_KEY,
    insecureSkipVerify=BOOLEAN,
    serverName=STRING,
)
ENDPOINT = record(
    port=STRING,
    path=STRING,
    scheme={"enum": ["http", "https"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels=BOOLEAN,
    tlsConfig=TLS,
    basicAuth=record(username=SECRET_KEY, password=SECRET_KEY),
    relabelings=several(RELABELING),
    metricRelabelings=several(RELABELING),
)
SELECTOR = record(matchLabels=LABELS)
RULE = {
    **record(
        ["expr"],
        record=STRING,
        alert=STRING,
        expr=STRING,
        labels=LABELS,
        annotations=LABELS,
        **{"for": DURATION, "keep_firing_for": DURATION},
    ),
    "oneOf": [{"required": ["record"]}, {"required": ["alert"]}],
}
STRATEGY = record(["type"], type={"enum": ["RunAsAny", "MustRunAs", "MustRunAsRange"]})
SELINUX = record(type=STRING, user=STRING, role=STRING, level=STRING)

MONITORING = "monitoring.coreos.com/v1"
SECURITY = "security.openshift.io/v1"

SCHEMAS = {
    (MONITORING, "PodMonitor"): resource(
        MONITORING,
        "PodMonitor",
        spec=record(
            ["selector", "podMetricsEndpoints"],
            selector=SELECTOR,
            podMetricsEndpoints=several(ENDPOINT),
        ),
    ),
    (MONITORING, "ServiceMonitor"): resource(
        MONITORING,
        "ServiceMonitor",
        spec=record(["selector", "endpoints"], selector=SELECTOR, endpoints=several(ENDPOINT)),
    ),
    (MONITORING, "PrometheusRule"): resource(
        MONITORING,
        "PrometheusRule",
        spec=record(
            ["groups"],
            groups=several(record(["name"], name=STRING, interval=DURATION, rules=several(RULE))),
        ),
    ),
    (SECURITY, "SecurityContextConstraints"): resource(
        SECURITY,
        "SecurityContextConstraints",
        allowHostDirVolumePlugin=BOOLEAN,
        allowHostIPC=BOOLEAN,
        allowHostNetwork=BOOLEAN,
        allowHostPID=BOOLEAN,
        allowHostPorts=BOOLEAN,
        allowPrivilegeEscalation=BOOLEAN,
        allowPrivilegedContainer=BOOLEAN,
        allowedCapabilities=STRINGS,
        defaultAddCapabilities=STRINGS,
        requiredDropCapabilities=STRINGS,
        readOnlyRootFilesystem=BOOLEAN,
        fsGroup=STRATEGY,
        runAsUser=STRATEGY,
        seLinuxContext=record(["type"], type=STRING, seLinuxOptions=SELINUX),
        seccompProfiles=STRINGS,
        supplementalGroups=STRATEGY,
        users=STRINGS,
        groups=STRINGS,
        volumes=STRINGS,
    ),
}
