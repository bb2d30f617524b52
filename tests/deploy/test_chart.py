"""The chart over a matrix of values: valid objects, and what the values promise."""

import copy
import json
import re
import tempfile
import tomllib
import unittest

import helm_python as helm
import yaml

import chart
import manifest

LABELS = {"team": "performance", "example.com/cost-centre": "42"}
SELECTOR = {"app.kubernetes.io/name": "pmuscope", "app.kubernetes.io/instance": "pmuscope"}

# What a value of agent.toml may hold that YAML, TOML or a template could take for syntax.
HOSTILE = {
    "quotes": "a \"quoted\" 'value'",
    "template": "{{ .Release.Name }} {{ fail \"no\" }} {{`",
    "backslash": "C:\\new\\table \\u0000 \\",
    "yaml": "key: [value] # no comment & *anchor !tag | >",
    "emoji": "größe 🦀 \u2028",
    "toml": "\"\"\" ''' [table]",
    "empty": "",
}

EVERYTHING = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "mine"}],
    "config": {
        "interval": "30s",
        "count": {"events": ["cycles", "{a,b}:u"], "max_rows": 65536},
        "series": {"labels": HOSTILE, "max": 50000},
        "max_overhead": "1%",
        "otlp": {"endpoint": "https://collector:4317", "headers": {"x-a.b": "c"}},
    },
    "otlp": {"tlsSecret": "collector-tls", "clientCertificate": True},
    "web": {"tlsSecret": "pmuscope-tls", "config": {"basic_auth_users": {"a": "$2y$10$x"}}},
    "capabilities": {"extra": ["SYS_PTRACE", "BPF"]},
    "seLinuxOptions": {"type": "spc_t"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]},
                    {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    "priorityClassName": "system-node-critical",
    "podLabels": LABELS,
    "podAnnotations": {"note": "a: b # c"},
    "labels": LABELS,
    "env": [{"name": "RUST_LOG", "value": "debug"}],
    "podMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "tlsConfig": {"insecureSkipVerify": True},
        "basicAuth": {"username": {"name": "s", "key": "u"}, "password": {"name": "s", "key": "p"}},
        "metricRelabelings": [
            {"sourceLabels": ["__name__"], "regex": "pmuscope_self_.*", "action": "drop"}
        ],
    },
    "prometheusRule": {"enabled": True, "labels": {"role": "alert-rules"}},
    "dashboards": {"enabled": True, "annotations": {"folder": "nodes"}},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}],
    },
}
NOTHING = {
    "spe": {"enabled": False},
    "hostPID": False,
    "paths": {"criSocket": ""},
    "pins": {"enabled": False},
    "serviceAccount": {"create": False},
    "tolerations": [],
    "podMonitor": {"enabled": False},
}
OPENSHIFT = {"openshift": {"enabled": True}, "paths": {"criSocket": "/run/crio/crio.sock"}}
SERVICE = {"serviceMonitor": {"enabled": True, "labels": LABELS}, "http": {"address": "[::]"}}
MATRIX = {
    "default": {},
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "openshift": OPENSHIFT,
    "openshift, everything": {**EVERYTHING, **OPENSHIFT},
    "service": SERVICE,
    "own secret": {"web": {"existingSecret": "mine"}},
    "no hostPID": {"hostPID": False},
    "one architecture": {"architectures": ["arm64"]},
    "unconfined": {
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "pmuscope"},
    },
}

# Values that the schema, or the chart itself, must refuse, with a word of the message.
REFUSED = {
    "a key that does not exist": ({"hostPid": True}, "hostPid"),
    "a port out of range": ({"http": {"port": 70000}}, "port"),
    "a port as text": ({"http": {"port": "9464"}}, "port"),
    "all capabilities": ({"capabilities": {"extra": ["ALL"]}}, "extra"),
    "no right to count": ({"capabilities": {"base": ["BPF"]}}, "base"),
    "a name with a line break": ({"nameOverride": "a\nkind: Pod"}, "nameOverride"),
    "a path that leaves": ({"paths": {"run": "/run/$(id)"}}, "run"),
    "a relative path": ({"pins": {"hostPath": "sys/fs/bpf"}}, "hostPath"),
    "an image with a line break": ({"image": {"repository": "a\n  privileged: true"}}, "repository"),
    "a label with quotes": ({"labels": {"a": '"b"'}}, "labels"),
    "an architecture without a build": ({"architectures": ["riscv64"]}, "architectures"),
    "no architecture": ({"architectures": []}, "architectures"),
    "a profile without its file": ({"seccompProfile": {"type": "Localhost"}}, "seccompProfile"),
    "a memory limit for both": ({"resources": {"limits": {"memory": "1Gi"}}}, "memory"),
    "a port in two places": ({"config": {"http": {"listen": ":1"}}}, "config.http.listen"),
    "a directory in two places": ({"config": {"run": {"directory": "/x"}}}, "config.run.directory"),
    "a table that is none": ({"config": {"http": 3}}, "http"),
    "a file in two places": (
        {
            "otlp": {"tlsSecret": "s"},
            "config": {"otlp": {"endpoint": "https://c:1", "ca_file": "/x"}},
        },
        "config.otlp.ca_file",
    ),
    "a client's certificate from nowhere": ({"otlp": {"clientCertificate": True}}, "clientCertificate"),
    "an authority of no collector": ({"otlp": {"tlsSecret": "s"}}, "tlsSecret"),
    "an AppArmor profile without its file": (
        {"appArmorProfile": {"type": "Localhost"}},
        "appArmorProfile",
    ),
    "a line break in agent.toml": ({"config": {"interval": "1s\n[pins]"}}, "config"),
    "two agents on a node": (
        {"updateStrategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}},
        "maxSurge",
    ),
    "both monitors": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "scraped twice",
    ),
}


def pod(objects):
    return chart.one(objects, "DaemonSet")["spec"]["template"]


def container(objects):
    (only,) = pod(objects)["spec"]["containers"]
    return only


def agent_toml(objects):
    maps = [item for item in objects if item["kind"] == "ConfigMap"]
    (text,) = [item["data"]["agent.toml"] for item in maps if "agent.toml" in item["data"]]
    return tomllib.loads(text)


def mebibytes(quantity):
    assert quantity.endswith("Mi"), quantity
    return int(quantity[:-2])


class Matrix(unittest.TestCase):
    """What holds for all values."""

    @classmethod
    def setUpClass(cls):
        cls.rendered = {name: chart.render(values) for name, values in MATRIX.items()}

    def each(self):
        for name, objects in self.rendered.items():
            with self.subTest(name):
                yield name, objects

    def test_a_chart_without_findings(self):
        for name, values in MATRIX.items():
            with self.subTest(name):
                report = helm.lint(chart.CHART, values, strict=True, namespace="m")
                found = [it for it in report["messages"] if it["error"] != "icon is recommended"]
                self.assertEqual((found, report["errors"]), ([], []))

    def test_no_privileges_but_capabilities(self):
        for _, objects in self.each():
            context = container(objects)["securityContext"]
            self.assertIs(context["privileged"], False)
            self.assertIs(context["allowPrivilegeEscalation"], False)
            self.assertIs(context["readOnlyRootFilesystem"], True)
            self.assertEqual(context["capabilities"]["drop"], ["ALL"])
            added = context["capabilities"]["add"]
            self.assertEqual(len(added), len(set(added)))
            self.assertTrue({"BPF", "PERFMON"} <= set(added))
            spec = pod(objects)["spec"]
            self.assertNotIn("hostNetwork", spec)
            self.assertIs(spec["automountServiceAccountToken"], False)

    def test_every_mount_has_a_volume_and_every_volume_a_mount(self):
        for _, objects in self.each():
            mounts = container(objects)["volumeMounts"]
            volumes = [volume["name"] for volume in pod(objects)["spec"]["volumes"]]
            self.assertEqual(sorted(mount["name"] for mount in mounts), sorted(volumes))
            paths = [mount["mountPath"] for mount in mounts]
            for path in paths:
                above = [it for it in paths if path.startswith(it + "/")]
                self.assertEqual(above, [], f"{path} lies in another mount")

    def test_the_agent_finds_what_is_mounted(self):
        for _, objects in self.each():
            toml = agent_toml(objects)
            mounts = [mount["mountPath"] for mount in container(objects)["volumeMounts"]]
            inside = [toml["run"]["directory"], toml["state"]["path"]]
            inside += [toml[t][k] for t, k in [("pins", "path"), ("names", "cri")] if t in toml]
            inside += [toml["http"]["web_config"]] if "web_config" in toml["http"] else []
            files = ("ca_file", "cert_file", "key_file")
            inside += [it for key, it in toml.get("otlp", {}).items() if key in files]
            inside += [it for key, it in toml.get("count", {}).items() if key == "calibration"]
            for path in inside:
                self.assertTrue(any((path + "/").startswith(it + "/") for it in mounts), path)
            # AppArmor's default forbids writes below /sys/fs, cgroups aside.
            self.assertFalse(toml.get("pins", {}).get("path", "").startswith("/sys"))

    def test_the_port_is_the_one_that_the_agent_listens_on(self):
        for _, objects in self.each():
            (port,) = container(objects)["ports"]
            listen = agent_toml(objects)["http"]["listen"]
            self.assertEqual(int(listen.rsplit(":", 1)[1]), port["containerPort"])

    def test_selectors_find_the_pods(self):
        for _, objects in self.each():
            labels = pod(objects)["metadata"]["labels"]
            for item in objects:
                spec = item.get("spec", {})
                selector = spec.get("selector") or spec.get("podSelector")
                if item["kind"] in ("PrometheusRule", "ServiceMonitor") or selector is None:
                    continue
                selector = selector.get("matchLabels", selector)
                self.assertTrue(selector.items() <= labels.items(), item["kind"])

    def test_every_object_has_the_labels(self):
        for name, objects in self.each():
            for item in objects:
                labels = item["metadata"]["labels"]
                self.assertTrue(SELECTOR.items() <= labels.items())
                if name == "everything":
                    self.assertTrue(LABELS.items() <= labels.items(), item["kind"])

    def test_names_are_not_there_twice(self):
        for _, objects in self.each():
            names = [(item["kind"], item["metadata"]["name"]) for item in objects]
            self.assertEqual(len(names), len(set(names)))


class Values(unittest.TestCase):
    """What single values do."""

    def test_hostile_values_are_refused(self):
        for name, (values, word) in REFUSED.items():
            with self.subTest(name), self.assertRaises(helm.HelmError) as refused:
                chart.render(values)
            self.assertIn(word, str(refused.exception), name)

    def test_text_reaches_the_agent_as_it_is(self):
        toml = agent_toml(chart.render(EVERYTHING))
        for table, keys in EVERYTHING["config"].items():
            found = toml[table]
            if isinstance(keys, dict):
                found = {key: found[key] for key in keys}
            self.assertEqual(found, keys)
        self.assertEqual(toml["http"]["web_config"], "/etc/pmuscope-web/web.yml")

    def test_a_changed_configuration_restarts_the_agent(self):
        def sums(values):
            annotations = pod(chart.render(values))["metadata"]["annotations"]
            return {key: it for key, it in annotations.items() if key.startswith("checksum/")}

        plain = sums({})
        self.assertEqual(plain, sums({"hostPID": False}))
        self.assertNotEqual(plain, sums({"config": {"interval": "30s"}}))
        self.assertNotEqual(plain, sums({"http": {"port": 9465}}))
        one, other = ({"web": {"config": {"basic_auth_users": {"a": it}}}} for it in "xy")
        self.assertNotEqual(sums(one), sums(other))

    def test_the_memory_limit_grows_with_the_node(self):
        def limit(**memory):
            spe = {"enabled": memory.pop("spe", True)}
            objects = chart.render({"memory": memory, "spe": spe})
            return mebibytes(container(objects)["resources"]["limits"]["memory"])

        # 1.25 x (32 MiB + two rows of 416 B + 8 KiB a container + 128 KiB a CPU), by
        # docs/reference/chart.md.
        self.assertEqual(limit(cpus=16, containers=1000, spe=False), 69)
        self.assertEqual(limit(cpus=144, containers=1000, spe=False), 216)
        # With 104 MiB and 256 KiB a CPU more.
        self.assertEqual(limit(cpus=144, containers=1000), 391)
        self.assertLess(limit(cpus=16), limit(cpus=32))

        def counting(**count):
            values = {"config": {"count": count}, "memory": {"cpus": 16, "containers": 100}}
            memory = container(chart.render(values))["resources"]["limits"]["memory"]
            return mebibytes(memory)

        # 832 B x 16 + 3 KiB for each of 2,500 processes; 58 MiB and 64 KiB a CPU.
        self.assertEqual(counting(top_processes=0), counting())
        self.assertAlmostEqual(counting(top_processes=9), counting() + 1.25 * 39.1, delta=1)
        self.assertAlmostEqual(counting(sample=["cycles"]), counting() + 1.25 * 59, delta=1)
        # A request above its limit is refused by the API server.
        for cpus in (1, 2, 8, 64):
            for spe in (True, False):
                objects = chart.render({"memory": {"cpus": cpus, "containers": 1}, "spe": {"enabled": spe}})
                resources = container(objects)["resources"]
                request, most = (mebibytes(resources[it]["memory"]) for it in ("requests", "limits"))
                self.assertLessEqual(request, most, f"{cpus} CPUs")
        objects = chart.render({"memory": {"limit": "512Mi"}})
        self.assertEqual(container(objects)["resources"]["limits"]["memory"], "512Mi")

    def test_sampling_needs_locked_memory(self):
        for enabled in (True, False):
            objects = chart.render({"spe": {"enabled": enabled}})
            added = container(objects)["securityContext"]["capabilities"]["add"]
            self.assertEqual("IPC_LOCK" in added, enabled)
            self.assertEqual(agent_toml(objects)["spe"]["enabled"], enabled and "auto")

    def test_apparmor_is_not_asked_for_unless_told_to(self):
        # Nodes without AppArmor refuse a pod that asks for any profile.
        self.assertNotIn("appArmorProfile", container(chart.render({}))["securityContext"])
        asked = {"appArmorProfile": {"type": "RuntimeDefault"}}
        context = container(chart.render(asked))["securityContext"]
        self.assertEqual(context["appArmorProfile"], asked["appArmorProfile"])

    def test_a_collector_behind_tls(self):
        endpoint = {"config": {"otlp": {"endpoint": "https://collector:4317"}}}
        toml = agent_toml(chart.render({**endpoint, "otlp": {"tlsSecret": "s"}}))
        self.assertEqual(toml["otlp"]["ca_file"], "/etc/pmuscope-otlp/ca.crt")
        self.assertNotIn("cert_file", toml["otlp"])
        self.assertNotIn("otlp", agent_toml(chart.render({})))

    def test_calibrations_of_a_fleet(self):
        config = {"count": {"by": "pod"}}
        objects = chart.render({"calibration": {"configMap": "c"}, "config": config})
        count = {"by": "pod", "calibration": "/etc/pmuscope-calibration"}
        self.assertEqual(agent_toml(objects)["count"], count)
        volumes = pod(objects)["spec"]["volumes"]
        self.assertIn({"name": "calibration", "configMap": {"name": "c"}}, volumes)
        self.assertNotIn("count", agent_toml(chart.render({})))

    def test_only_nodes_with_a_build(self):
        for values in ({}, {"architectures": ["arm64"]}, EVERYTHING):
            affinity = pod(chart.render(values))["spec"]["affinity"]
            required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            terms = required["nodeSelectorTerms"]
            wanted = {
                "key": "kubernetes.io/arch",
                "operator": "In",
                "values": values.get("architectures", ["amd64", "arm64"]),
            }
            # Terms are alternatives: each must ask for it.
            for term in terms:
                self.assertIn(wanted, term["matchExpressions"])
            if values is EVERYTHING:
                self.assertEqual([len(term["matchExpressions"]) for term in terms], [2, 2])
                self.assertIn("podAntiAffinity", affinity)

    def test_openshift_admits_what_the_pod_asks_for(self):
        for values in (OPENSHIFT, {**EVERYTHING, **OPENSHIFT}, {**NOTHING, **OPENSHIFT}):
            objects = chart.render(values)
            scc = chart.one(objects, "SecurityContextConstraints")
            spec, context = pod(objects)["spec"], container(objects)["securityContext"]
            self.assertTrue(set(context["capabilities"]["add"]) <= set(scc["allowedCapabilities"]))
            self.assertEqual(scc["allowHostPID"], spec["hostPID"])
            self.assertEqual(scc["seLinuxContext"]["seLinuxOptions"], context["seLinuxOptions"])
            self.assertNotIn("appArmorProfile", context)
            kinds = {key for volume in spec["volumes"] for key in volume if key != "name"}
            self.assertTrue(kinds <= set(scc["volumes"]))
            account = f"system:serviceaccount:monitoring:{spec['serviceAccountName']}"
            self.assertEqual(scc["users"], [account])
        for profile, name in (
            ({"type": "RuntimeDefault"}, "runtime/default"),
            ({"type": "Unconfined"}, "unconfined"),
            ({"type": "Localhost", "localhostProfile": "a/b.json"}, "localhost/a/b.json"),
        ):
            objects = chart.render({**OPENSHIFT, "seccompProfile": profile})
            scc = chart.one(objects, "SecurityContextConstraints")
            self.assertEqual(scc["seccompProfiles"], [name])

    def test_the_network_policy_lets_out_what_is_configured(self):
        def ports(endpoint):
            values = {"networkPolicy": {"enabled": True}}
            if endpoint:
                values["config"] = {"otlp": {"endpoint": endpoint}}
            policy = chart.one(chart.render(values), "NetworkPolicy")
            rules = [rule["ports"] for rule in policy["spec"]["egress"]]
            return {(port["protocol"], port["port"]) for rule in rules for port in rule}

        dns = {("UDP", 53), ("TCP", 53)}
        self.assertEqual(ports(""), set())
        self.assertEqual(ports("http://collector:4317"), {("TCP", 4317)} | dns)
        self.assertEqual(ports("http://[::1]:4317/"), {("TCP", 4317)} | dns)
        self.assertEqual(ports("https://collector"), {("TCP", 443)} | dns)

    def test_tls_is_asked_for_where_it_is_served(self):
        tls = {**EVERYTHING, "web": {"tlsSecret": "pmuscope-tls"}}
        for values, scheme in ((tls, "https"), ({**EVERYTHING, "web": {}}, "http")):
            objects = chart.render(values)
            (endpoint,) = chart.one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
            self.assertEqual(endpoint["scheme"], scheme)
            for probe in ("livenessProbe", "readinessProbe"):
                get = container(objects)[probe]["httpGet"]
                self.assertEqual(get["scheme"], scheme.upper())
        get = container(chart.render(EVERYTHING))["livenessProbe"]["httpGet"]
        self.assertEqual(get["path"], "/healthz", "it needs no password")
        clients = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "/ca"}
        clients = {"tlsSecret": "tls", "config": {"tls_server_config": clients}}
        for web in (clients, {"existingSecret": "mine"}):
            probe = container(chart.render({"web": web}))["livenessProbe"]
            self.assertIn("tcpSocket", probe, "kubelet has no certificate")
        secret = chart.one(chart.render(EVERYTHING), "Secret")
        web = yaml.safe_load(secret["stringData"]["web.yml"])
        self.assertEqual(web["tls_server_config"]["cert_file"], "/etc/pmuscope-tls/tls.crt")
        self.assertEqual(web["basic_auth_users"], {"a": "$2y$10$x"})

    def test_a_scrape_does_not_lend_its_own_pod_to_what_has_none(self):
        for values, kind, key in (
            (EVERYTHING, "PodMonitor", "podMetricsEndpoints"),
            (SERVICE, "ServiceMonitor", "endpoints"),
        ):
            (endpoint,) = chart.one(chart.render(values), kind)["spec"][key]
            self.assertIs(endpoint["honorLabels"], True)
            dropped = [it["regex"] for it in endpoint["relabelings"] if it.get("action")]
            for label in ("namespace", "pod", "container", "service", "endpoint"):
                self.assertTrue(re.fullmatch(dropped[0], label))
            self.assertFalse(re.fullmatch(dropped[0], "node"))

    def test_rules_and_dashboards_are_those_of_the_files(self):
        objects = chart.render(EVERYTHING)
        files = sorted((chart.CHART / "prometheus").glob("*.yaml"))
        groups = [it for file in files for it in yaml.safe_load(file.read_text())["groups"]]
        self.assertEqual(chart.one(objects, "PrometheusRule")["spec"]["groups"], groups)
        found = {}
        for item in objects:
            if "grafana_dashboard" in item["metadata"]["labels"]:
                found |= {key: json.loads(text) for key, text in item["data"].items()}
        files = (chart.CHART / "grafana").glob("*.json")
        self.assertEqual(found, {f"pmuscope-{f.name}": json.loads(f.read_text()) for f in files})

    def test_two_releases_in_one_namespace(self):
        one, other = (chart.render(EVERYTHING, name=name) for name in ("one", "other"))
        names = [(it["kind"], it["metadata"]["name"]) for it in one + other]
        self.assertEqual(len(names), len(set(names)))
        labels = [pod(objects)["metadata"]["labels"] for objects in (one, other)]
        selector = chart.one(one, "DaemonSet")["spec"]["selector"]["matchLabels"]
        self.assertFalse(selector.items() <= labels[1].items())


class Files(unittest.TestCase):
    """Files that are made from the chart, or follow from others."""

    def test_the_plain_manifest_is_up_to_date(self):
        message = "deploy/kubernetes.yaml has drifted: run `cargo xtask deploy --write`"
        self.assertTrue(manifest.FILE.exists(), message)
        self.assertEqual(manifest.FILE.read_text(), manifest.text(), message)

    def test_the_plain_manifest_is_valid(self):
        for item in yaml.load_all(manifest.FILE.read_text(), chart.Strict):
            chart.validate(item)

    def test_versions_are_those_of_the_workspace(self):
        cargo = tomllib.loads((chart.ROOT / "Cargo.toml").read_text())
        version = cargo["workspace"]["package"]["version"]
        about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
        self.assertEqual((about["version"], about["appVersion"]), (version, version))

    def test_an_archive_of_the_chart_is_a_chart(self):
        with tempfile.TemporaryDirectory() as directory, helm.Chart.load(chart.CHART) as loaded:
            archive = loaded.save(directory)
            report = helm.lint(archive, copy.deepcopy(EVERYTHING), strict=True)
            self.assertEqual(report["errors"], [])

    def test_schemas_refuse_what_they_do_not_know(self):
        objects = chart.render(EVERYTHING)
        for kind in ("DaemonSet", "PodMonitor", "PrometheusRule"):
            wrong = copy.deepcopy(chart.one(objects, kind))
            wrong["spec"]["selectors"] = {}
            with self.subTest(kind), self.assertRaises(Exception):
                chart.validate(wrong)
