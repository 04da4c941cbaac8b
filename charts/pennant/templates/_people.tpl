{{/* What people may do, by role; `edit` has the rules of `view` too, and `admin` those of both. */}}
{{- define "pennant.people.view" -}}
- apiGroups: [pennant.dev]
  resources: [pipelines, notifications, deliveries]
  verbs: [get, list, watch]
{{- end }}

{{- define "pennant.people.edit" -}}
- apiGroups: [pennant.dev]
  resources: [pipelines, notifications]
  verbs: [create, update, patch, delete, deletecollection]
# Redelivery: an annotation. Spec and status of a Delivery cannot be changed with it.
- apiGroups: [pennant.dev]
  resources: [deliveries]
  verbs: [patch]
{{- end }}

{{- define "pennant.people.admin" -}}
# A Delivery that is deleted before it was sent is not sent; of one that was sent the record is gone.
- apiGroups: [pennant.dev]
  resources: [deliveries]
  verbs: [delete, deletecollection]
{{- end }}
