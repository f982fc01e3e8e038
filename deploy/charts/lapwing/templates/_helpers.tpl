{{- define "lapwing.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Names of objects: room is left for the suffixes of some. */}}
{{- define "lapwing.fullname" -}}
{{- $name := include "lapwing.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "lapwing.selector" -}}
app.kubernetes.io/name: {{ include "lapwing.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lapwing.labels" -}}
{{ include "lapwing.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "lapwing.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lapwing.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "lapwing.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The Secret with tls.crt and tls.key. Each mode has a name of its own, so that an upgrade to another mode deletes no new Secret. */}}
{{- define "lapwing.certificateSecret" -}}
{{- if eq .Values.certificate.mode "secret" -}}
{{ .Values.certificate.secret.name }}
{{- else if eq .Values.certificate.mode "cert-manager" -}}
{{ include "lapwing.fullname" . }}-tls
{{- else -}}
{{ include "lapwing.fullname" . }}-generated-tls
{{- end -}}
{{- end -}}

{{/* The names under which the API server calls the webhook, as a JSON array. */}}
{{- define "lapwing.dnsNames" -}}
{{- $service := printf "%s.%s" (include "lapwing.fullname" .) .Release.Namespace -}}
{{- list $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) | toJson -}}
{{- end -}}
