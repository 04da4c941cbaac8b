{{/* The command line. It also contains values that are defaults of the program, so that all settings can be read in one place. */}}
{{- define "relaybook.args" -}}
- run
- --controllers={{ join "," .Values.controllers }}
- --config-map={{ .Values.config.name }}
- --cluster-name={{ .Values.clusterName }}
- --cluster-grace={{ .Values.clusterGrace }}
- --workers={{ int .Values.workers }}
- --keep-deliveries={{ int .Values.keepDeliveries }}
- --http-addr={{ .Values.http.address }}:{{ int .Values.http.port }}
{{- if .Values.hooks.enabled }}
{{- if not (has "promote" .Values.controllers) }}
{{- fail "hooks.enabled requires the controller promote; add it to controllers, or enable hooks in the release that runs it" }}
{{- end }}
- --hooks-addr={{ .Values.http.address }}:{{ int .Values.hooks.port }}
{{- end }}
{{- with .Values.page }}
{{- if .enabled }}
- --page-addr={{ $.Values.http.address }}:{{ int .port }}
{{- if .actions }}
- --page-actions
{{- end }}
{{- if .keySecretName }}
- --page-key-file=/etc/relaybook/page/key
{{- end }}
{{- end }}
{{- if .url }}
- {{ printf "--page-url=%s" .url | quote }}
{{- end }}
{{- end }}
- --log-format={{ .Values.log.format }}
{{- range uniq .Values.watchNamespaces }}
- --watch-namespace={{ . }}
{{- end }}
{{- if .Values.noCrossNamespaceRefs }}
- --no-cross-namespace-refs
{{- end }}
{{- if .Values.observe.fleetEverywhere }}
- --fleet-everywhere
{{- end }}
{{- if .Values.follow }}
{{- if not .Values.pipelineSets.enabled }}
{{- fail "follow requires PipelineSets; set pipelineSets.enabled to true, or follow to []" }}
{{- end }}
{{- if not (has "pipeline" .Values.controllers) }}
{{- fail "follow requires the controller pipeline; add it to controllers, or set follow in the release that runs it" }}
{{- end }}
{{- if and .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) }}
{{- fail "follow makes PipelineSets in the namespace of the release; add this namespace to watchNamespaces" }}
{{- end }}
{{- if .Values.noCrossNamespaceRefs }}
{{- fail "follow selects objects in all namespaces, which noCrossNamespaceRefs forbids; set one of them" }}
{{- end }}
{{- if .Values.shard.id }}
{{- fail "follow makes PipelineSets for all shards; set it in the release without shard.id" }}
{{- end }}
- --follow={{ join "," .Values.follow }}
{{- if .Values.followLayers }}
- --follow-layers
{{- end }}
{{- end }}
{{- with .Values.shard }}
{{- if .id }}
- --shard-id={{ .id }}
{{- end }}
{{- if .all }}
- --shards={{ join "," .all }}
{{- end }}
{{- if ne .label "fleet.cattle.io/shard-ref" }}
- --shard-label={{ .label }}
{{- end }}
{{- end }}
{{- if not .Values.pipelineSets.enabled }}
- --no-pipeline-sets
{{- end }}
{{- if .Values.allowInsecureClusters }}
- --allow-insecure-clusters
{{- end }}
{{- with .Values.egress }}
{{- if .allowHttp }}
- --allow-http
{{- end }}
{{- range .allowDestinations }}
- --allow-destination={{ . }}
{{- end }}
{{- range .denyDestinations }}
- --deny-destination={{ . }}
{{- end }}
{{- if and .proxy.url (not .proxy.secretName) }}
- {{ printf "--proxy=%s" .proxy.url | quote }}
{{- end }}
{{- end }}
{{- with .Values.tracing }}
{{- if .endpoint }}
- {{ printf "--tracing-endpoint=%s" .endpoint | quote }}
- --tracing-sample={{ .sample }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "relaybook.env" -}}
# Identifies this replica in the Leases, so it must differ for each running process.
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: RELAYBOOK_LOG
  value: {{ .Values.log.level | quote }}
{{- with .Values.egress.proxy }}
{{- if .secretName }}
- name: RELAYBOOK_PROXY
  valueFrom: {secretKeyRef: {name: {{ .secretName | quote }}, key: {{ .secretKey | quote }}}}
{{- end }}
{{- end }}
{{- with .Values.tracing }}
{{- if and .endpoint .headersSecretName }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ .headersSecretName | quote }}, key: {{ .headersSecretKey | quote }}}}
{{- end }}
{{- end }}
{{- if include "relaybook.caBundle" . }}
# CA certificates to trust in addition to those of the image, which are in SSL_CERT_FILE.
- name: SSL_CERT_DIR
  value: /etc/relaybook/ca
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The command line of `helm test`. */}}
{{- define "relaybook.check.args" -}}
- check
- --controllers={{ join "," .Values.controllers }}
- --config-map={{ .Values.config.name }}
{{- range uniq .Values.watchNamespaces }}
- --watch-namespace={{ . }}
{{- end }}
{{- if not .Values.pipelineSets.enabled }}
- --no-pipeline-sets
{{- end }}
{{- with .Values.shard.id }}
- --shard-id={{ . }}
{{- end }}
{{- if .Values.metrics.service.enabled }}
- --ready-url=http://{{ include "relaybook.fullname" . }}-metrics.{{ .Release.Namespace }}:{{ int .Values.metrics.service.port }}/readyz
{{- end }}
- --wait=1m
{{- end }}
