{{/* The name of the application in labels. */}}
{{- define "relaybook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of all objects: the name of the release and that of the chart, unless the first one contains the second one. */}}
{{- define "relaybook.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/*
The name of objects outside the namespace of the release. It includes that namespace, because another namespace may have a release of
the same name. It is unique, because neither the name nor the namespace contains a dot. Names of Roles and ClusterRoles may contain dots,
and may be as long as this name.
*/}}
{{- define "relaybook.elsewhere" -}}
{{- printf "%s.%s" (include "relaybook.fullname" .) .Release.Namespace }}
{{- end }}

{{/* The labels that select the Pods. They never change. */}}
{{- define "relaybook.selector" -}}
app.kubernetes.io/name: {{ include "relaybook.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "relaybook.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "relaybook.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "relaybook.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "relaybook.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is required if serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "relaybook.image" -}}
{{- $image := .Values.image }}
{{- $repository := required "image.repository is not set, and no image is published yet: build one (docs/image.md), push it where your nodes can pull it, and add --set image.repository=REGISTRY/relaybook" $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The Secrets with credentials of registries, as a list; empty: none. */}}
{{- define "relaybook.pullSecrets" -}}
{{- with concat .Values.imagePullSecrets .Values.global.imagePullSecrets | uniq }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The label of the Pod of `helm test`. It has no app.kubernetes.io/instance, so that nothing of the release selects it. */}}
{{- define "relaybook.check.selector" -}}
app.kubernetes.io/name: {{ printf "%s-check" (include "relaybook.name" . | trunc 57) | quote }}
{{- end }}

{{/* The ConfigMap with certificates; empty: none. */}}
{{- define "relaybook.caBundle" -}}
{{- $bundle := .Values.egress.caBundle }}
{{- if $bundle.configMapName }}
{{- $bundle.configMapName }}
{{- else if $bundle.content }}
{{- include "relaybook.fullname" . }}-ca
{{- end }}
{{- end }}
