{{/* The permissions of users, by role. `edit` also has the rules of `view`, and `admin` has those of both. */}}
{{- define "pennant.people.view" -}}
- apiGroups: [pennant.dev]
  resources: [pipelines, notifications, deliveries]
  verbs: [get, list, watch]
{{- end }}

{{- define "pennant.people.edit" -}}
- apiGroups: [pennant.dev]
  resources: [pipelines, notifications]
  verbs: [create, update, patch, delete, deletecollection]
# To request a redelivery by an annotation. The admission policy restricts it to the metadata. Without the policy, it also allows
# changes to the status of a pending Delivery.
- apiGroups: [pennant.dev]
  resources: [deliveries]
  verbs: [patch]
{{- end }}

{{- define "pennant.people.admin" -}}
# If a Delivery is deleted before it is sent, it is never sent. If it is deleted afterwards, its record is lost.
- apiGroups: [pennant.dev]
  resources: [deliveries]
  verbs: [delete, deletecollection]
{{- end }}
