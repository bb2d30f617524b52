{{- define "pmuscope.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "pmuscope.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pmuscope.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pmuscope.selector" -}}
app.kubernetes.io/name: pmuscope
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of every object, and with more of one kind. Those that select pods win. */ -}}
{{- define "pmuscope.labels" -}}
{{- include "pmuscope.labelsWith" (list . dict) -}}
{{- end -}}
{{- define "pmuscope.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := include "pmuscope.selector" $root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- mergeOverwrite dict $root.Values.labels (index . 1) $own | toYaml -}}
{{- end -}}

{{- define "pmuscope.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}
{{- end -}}

{{- /* Whether /metrics has a web configuration file, and whether it speaks TLS. */ -}}
{{- define "pmuscope.web" -}}
{{- if or .Values.web.existingSecret .Values.web.tlsSecret .Values.web.config }}true{{ end -}}
{{- end -}}
{{- define "pmuscope.scheme" -}}
{{- if or .Values.web.existingSecret .Values.web.tlsSecret .Values.web.config.tls_server_config -}}
https
{{- else -}}
http
{{- end -}}
{{- end -}}
{{- /* Whether probes can only ask for the port: kubelet has no certificate to show, and what a secret of
the user's holds is not known here. */ -}}
{{- define "pmuscope.locked" -}}
{{- $tls := default dict .Values.web.config.tls_server_config -}}
{{- if or .Values.web.existingSecret (hasPrefix "Require" (default "" $tls.client_auth_type)) }}true{{ end -}}
{{- end -}}
{{- define "pmuscope.webSecret" -}}
{{- default (printf "%s-web" (include "pmuscope.name" .)) .Values.web.existingSecret -}}
{{- end -}}

{{- /* The memory limit in MiB. The formula is that of agent/memory.rs, whose tests look for its terms
here; docs/reference/chart.md has what it rests on. */ -}}
{{- define "pmuscope.memoryMi" -}}
{{- $m := .Values.memory -}}
{{- $count := default dict .Values.config.count -}}
{{- $processes := ternary (int64 $m.processes) 0 (gt (int64 (default 0 $count.top_processes)) 0) -}}
{{- $rows := mul (int64 $m.cpus) (add (int64 $m.containers) $processes) -}}
{{- $kib := add (mul 32 1024) (div (mul $rows 832) 1024) (mul (int64 $m.containers) 8) -}}
{{- $kib = add $kib (mul (int64 $m.cpus) 128) (mul $processes 3) -}}
{{- if $count.sample -}}
{{- $kib = add $kib (mul 58 1024) (mul (int64 $m.cpus) 64) -}}
{{- end -}}
{{- if .Values.spe.enabled -}}
{{- $kib = add $kib (mul 104 1024) (mul (int64 $m.cpus) (add 128 (int64 $m.speBufferKiB))) -}}
{{- end -}}
{{- div (add (div (mul $kib 5) 4) 1023) 1024 -}}
{{- end -}}

{{- define "pmuscope.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{- /* A value of TOML: JSON's, but for tables and null. */ -}}
{{- define "pmuscope.tomlValue" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "pmuscope.tomlKey" $key) (include "pmuscope.tomlValue" $value)) -}}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}
{{- $items = append $items (include "pmuscope.tomlValue" .) -}}
{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "invalid" . -}}
{{- fail "config: TOML has no null: leave the key out" -}}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* The configuration: config, and what the chart itself must know. */ -}}
{{- define "pmuscope.toml" -}}
{{- $own := dict
      "http" (dict "listen" (printf "%s:%d" .Values.http.address (int .Values.http.port)))
      "run" (dict "directory" "/run/pmuscope")
      "state" (dict "path" "/run/pmuscope/state")
      "spe" (dict "enabled" (ternary "auto" false .Values.spe.enabled)) -}}
{{- if include "pmuscope.web" . -}}
{{- $_ := set $own.http "web_config" "/etc/pmuscope-web/web.yml" -}}
{{- end -}}
{{- if .Values.pins.enabled -}}
{{- $_ := set $own "pins" (dict "path" "/bpf/pmuscope" "keep" .Values.pins.keep) -}}
{{- end -}}
{{- $endpoint := get (default dict .Values.config.otlp) "endpoint" -}}
{{- if and .Values.otlp.clientCertificate (not .Values.otlp.tlsSecret) -}}
{{- fail "otlp.clientCertificate: it is in otlp.tlsSecret, which is not set" -}}
{{- end -}}
{{- if and .Values.otlp.tlsSecret (not (hasPrefix "https://" $endpoint)) -}}
{{- fail "otlp.tlsSecret: config.otlp.endpoint is to begin with https://" -}}
{{- end -}}
{{- if .Values.otlp.tlsSecret -}}
{{- $files := dict "ca_file" "/etc/pmuscope-otlp/ca.crt" -}}
{{- if .Values.otlp.clientCertificate -}}
{{- $_ := set $files "cert_file" "/etc/pmuscope-otlp/tls.crt" -}}
{{- $_ := set $files "key_file" "/etc/pmuscope-otlp/tls.key" -}}
{{- end -}}
{{- $_ := set $own "otlp" $files -}}
{{- end -}}
{{- if .Values.calibration.configMap -}}
{{- $_ := set $own "count" (dict "calibration" "/etc/pmuscope-calibration") -}}
{{- end -}}
{{- with .Values.paths.criSocket -}}
{{- $_ := set $own "names" (dict "cri" (printf "/cri/%s" (base .))) -}}
{{- end -}}
{{- range $table, $keys := $own -}}
{{- range $key, $_ := $keys -}}
{{- if hasKey (default dict (get $.Values.config $table)) $key -}}
{{- fail (printf "config.%s.%s: the chart sets it, by a value of its own (values.yaml)" $table $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := mergeOverwrite (deepCopy .Values.config) $own -}}
{{- range $key, $value := $all }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "pmuscope.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $table, $keys := $all }}
{{- if kindIs "map" $keys }}

[{{ $table }}]
{{- range $key, $value := $keys }}
{{ include "pmuscope.tomlKey" $key }} = {{ include "pmuscope.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Relabelings of a target: instance and node are the node's name. The target's own namespace,
pod and container must go: with honorLabels they would be those of idle and system. */ -}}
{{- define "pmuscope.endpoint" -}}
port: metrics
path: /metrics
scheme: {{ include "pmuscope.scheme" .root }}
interval: {{ .monitor.interval }}
scrapeTimeout: {{ .monitor.scrapeTimeout }}
honorLabels: true
{{- with .monitor.tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - targetLabel: job
    replacement: pmuscope
  - action: labeldrop
    regex: namespace|pod|container|service|endpoint
{{- with .monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
