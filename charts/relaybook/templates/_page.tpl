{{/* The Secret with the key of cookies and forms; empty: none. */}}
{{- define "relaybook.page.key" -}}
{{- if .Values.page.enabled }}
{{- .Values.page.keySecretName }}
{{- end }}
{{- end }}

{{/*
The hosts of the Ingress or of the HTTPRoute, as a list. Takes the context (`root`), the name of the value (`way`) and its hosts, and fails
if this way does not lead to a page.
*/}}
{{- define "relaybook.page.hosts" -}}
{{- $page := .root.Values.page }}
{{- if not $page.enabled }}
{{- fail (printf "page.%s.enabled requires the page; set page.enabled=true, or page.%s.enabled=false" .way .way) }}
{{- end }}
{{- if and (not $page.url) (not .hosts) }}
{{- fail (printf "page.%s.enabled requires a host; set page.url to the URL under which users reach the page, such as https://relaybook.example.com" .way) }}
{{- end }}
{{- if not $page.url }}
{{- fail (printf "page.%s.enabled requires page.url, because the page answers only to the host of this URL; set page.url=https://%s" .way (first .hosts)) }}
{{- end }}
{{- toYaml (.hosts | default (list ((urlParse $page.url).hostname | lower))) }}
{{- end }}
