{{/*
The permissions of Relaybook: a rule for each call that it makes, without further verbs. A watch begins with a list. Single objects are
listed and watched by name, so that resourceNames apply to these verbs, too.
*/}}

{{/* The account that gets the permissions. */}}
{{- define "relaybook.subjects" -}}
- kind: ServiceAccount
  name: {{ include "relaybook.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* The rules for each followed namespace. */}}
{{- define "relaybook.rights.followed" -}}
{{- $pipeline := has "pipeline" .Values.controllers }}
{{- $dispatch := has "dispatch" .Values.controllers }}
{{- $promote := has "promote" .Values.controllers }}
{{- if and $pipeline .Values.pipelineSets.enabled }}
# PipelineSets make pipelines. A set can change only those that it made.
- apiGroups: [relaybook.dev]
  resources: [pipelines]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [relaybook.dev]
  resources: [pipelinesets]
  verbs: [get, list, watch]
- apiGroups: [relaybook.dev]
  resources: [pipelinesets/status]
  verbs: [patch]
{{- else }}
- apiGroups: [relaybook.dev]
  resources: [pipelines]
  verbs: [get, list, watch]
{{- end }}
{{- if or $pipeline $dispatch }}
- apiGroups: [relaybook.dev]
  resources: [pipelines/status]
  verbs: [patch]
{{- end }}
{{- if $promote }}
- apiGroups: [relaybook.dev]
  resources: [promotions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [relaybook.dev]
  resources: [promotions/status]
  verbs: [patch]
{{- else if $pipeline }}
- apiGroups: [relaybook.dev]
  resources: [promotions]
  verbs: [get, list, watch]
{{- end }}
{{- if $dispatch }}
- apiGroups: [relaybook.dev]
  resources: [notifications]
  verbs: [get, list, watch]
- apiGroups: [relaybook.dev]
  resources: [notifications/status]
  verbs: [patch]
{{- end }}
{{ include "relaybook.rights.kept" . }}
{{- if $pipeline }}
{{ include "relaybook.rights.observed" . }}
{{- end }}
{{- end }}

{{/* The rules for each namespace that can contain Deliveries: those with Pipelines, and the namespace of the release. */}}
{{- define "relaybook.rights.kept" -}}
{{- if has "dispatch" .Values.controllers -}}
- apiGroups: [relaybook.dev]
  resources: [deliveries]
  verbs: [get, list, watch, create, patch, delete]
{{ else if has "promote" .Values.controllers -}}
# Whether a receiver has accepted the request of a promotion.
- apiGroups: [relaybook.dev]
  resources: [deliveries]
  verbs: [list, watch]
{{ end -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{/* Each controller reads some: kubeconfigs of clusters, credentials of receivers, credentials of repositories and keys of hooks. */}}
{{- if eq .Values.rbac.secrets.access "all" }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch]
{{- end }}
{{- if and (eq .Values.rbac.configMaps.access "all") (has "dispatch" .Values.controllers) }}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* The rules for application objects, and for objects that represent clusters. */}}
{{- define "relaybook.rights.observed" -}}
{{- $rules := list }}
{{- with .Values.observe }}
{{- if .kubernetes }}
{{- $rules = append $rules (dict "apiGroups" (list "apps") "resources" (list "deployments" "statefulsets" "daemonsets")) }}
{{- $rules = append $rules (dict "apiGroups" (list "batch") "resources" (list "jobs")) }}
{{- end }}
{{- if .flux }}
{{- $rules = append $rules (dict "apiGroups" (list "kustomize.toolkit.fluxcd.io") "resources" (list "kustomizations")) }}
{{- $rules = append $rules (dict "apiGroups" (list "helm.toolkit.fluxcd.io") "resources" (list "helmreleases")) }}
{{- end }}
{{- if .argo }}
{{- $rules = append $rules (dict "apiGroups" (list "argoproj.io") "resources" (list "applications" "applicationsets")) }}
{{- end }}
{{- if .fleet }}
{{- $rules = append $rules (dict "apiGroups" (list "fleet.cattle.io") "resources" (list "bundles" "bundledeployments" "clusters" "clustergroups" "gitrepos" "helmops")) }}
{{- end }}
{{- if .knative }}
{{- $rules = append $rules (dict "apiGroups" (list "serving.knative.dev") "resources" (list "services")) }}
{{- end }}
{{- $rules = concat $rules .extra }}
{{- end }}
{{- with .Values.clusters }}
{{- if .gitops }}
{{- $rules = append $rules (dict "apiGroups" (list "gitops.weave.works") "resources" (list "gitopsclusters")) }}
{{- end }}
{{- if .clusterApi }}
{{- $rules = append $rules (dict "apiGroups" (list "cluster.x-k8s.io") "resources" (list "clusters")) }}
{{- end }}
{{- if .fleet }}
{{- $rules = append $rules (dict "apiGroups" (list "fleet.cattle.io") "resources" (list "clusters")) }}
{{- end }}
{{- end }}
{{- range $rules }}
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* The rules for the namespace of the release only. */}}
{{- define "relaybook.rights.own" -}}
{{- $leases := list }}
{{- range .Values.controllers }}
{{- $leases = append $leases (printf "relaybook-%s%s" . (ternary (printf "-%s" $.Values.shard.id) "" (ne $.Values.shard.id ""))) }}
{{- end -}}
# The Leases by which replicas share the work. A create cannot be restricted to names, so it is allowed for all Leases.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {{ toJson $leases }}
  verbs: [get, list, watch, update]
{{- if and .Values.pipelineSets.enabled (has "pipeline" .Values.controllers) }}
# The PipelineSets of follow. They are deleted when follow is empty, too.
- apiGroups: [relaybook.dev]
  resources: [pipelinesets]
  verbs: [create, patch, delete]
{{- end }}
# The published configuration, which relaybook explain and relaybook render use.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [relaybook-info]
  verbs: [get, create, patch]
{{- if has "dispatch" .Values.controllers }}
# The global configuration, and its last valid version. Server-side apply of a missing object is a create with a name.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ .Values.config.name | quote }}]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: ["{{ .Values.config.name }}-last-good"]
  verbs: [get, create, patch]
{{- end }}
{{- end }}

{{/* The rules for the listed Secrets and ConfigMaps: a map from each namespace to its rules, as YAML. */}}
{{- define "relaybook.rights.listed" -}}
{{- $all := dict }}
{{- range $resource, $of := dict "secrets" .Values.rbac.secrets "configmaps" .Values.rbac.configMaps }}
{{- if eq $of.access "listed" }}
{{- range $entry := $of.listed }}
{{- $rule := dict "apiGroups" (list "") "resources" (list $resource) "verbs" (list "list" "watch") }}
{{- if not $entry.all }}
{{- $_ := set $rule "resourceNames" $entry.names }}
{{- end }}
{{- $_ := set $all $entry.namespace (append (get $all $entry.namespace | default list) $rule) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}
