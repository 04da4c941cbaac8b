{{/* The permissions of users, by role. `edit` also has the rules of `view`, and `admin` has those of both. */}}
{{- define "relaybook.people.view" -}}
- apiGroups: [relaybook.dev]
  resources: [pipelines, pipelinesets, notifications, deliveries, promotions]
  verbs: [get, list, watch]
{{- end }}

{{- define "relaybook.people.edit" -}}
- apiGroups: [relaybook.dev]
  resources: [pipelines, pipelinesets, notifications]
  verbs: [create, update, patch, delete, deletecollection]
# To request a redelivery by an annotation. The admission policy restricts it to labels and annotations. Without the policy, it also allows
# changes to the status of a pending Delivery, and its deletion by an owner that does not exist.
- apiGroups: [relaybook.dev]
  resources: [deliveries]
  verbs: [patch]
{{- end }}

{{- define "relaybook.people.admin" -}}
# If a Delivery is deleted before it is sent, it is never sent. If it is deleted afterwards, its record is lost.
# A Promotion that is deleted before it has ended is not created again.
- apiGroups: [relaybook.dev]
  resources: [deliveries, promotions]
  verbs: [delete, deletecollection]
{{- end }}

{{/* The permissions of users who approve promotions. They cannot create one, and they can edit nothing but the approval. */}}
{{- define "relaybook.people.approver" -}}
- apiGroups: [relaybook.dev]
  resources: [promotions]
  verbs: [get, list, watch, patch]
- apiGroups: [relaybook.dev]
  resources: [pipelines]
  verbs: [get, list]
{{- end }}
