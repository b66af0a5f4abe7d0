{{- define "lakelog.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lakelog.selector" -}}
app.kubernetes.io/name: lakelog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lakelog.labels" -}}
{{ include "lakelog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "lakelog.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "lakelog.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "lakelog.scheme" -}}
{{ if .Values.gateway.tls.secret }}https{{ else }}http{{ end }}
{{- end }}

{{/* What each pod has: who it runs as, what it may, where it may write. */}}
{{- define "lakelog.pod" -}}
serviceAccountName: {{ include "lakelog.account" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What each container has. */}}
{{- define "lakelog.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .Values.storeSecret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "lakelog.store" -}}
- name: LAKELOG_DATA
  value: {{ .Values.data | quote }}
{{- with .Values.storeOptions }}
- name: LAKELOG_STORE_OPTIONS
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}

{{/* A root that is not there is never made, but by the job of the first install. */}}
{{- define "lakelog.cluster" -}}
- name: LAKELOG_MUST_EXIST
  value: "true"
{{- with .Values.clusterId }}
- name: LAKELOG_CLUSTER_ID
  value: {{ . }}
{{- end }}
{{- end }}

{{/* A setting as text; whole numbers of a values file are floats to Helm, and large ones would be 1e+07. */}}
{{- define "lakelog.value" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}
