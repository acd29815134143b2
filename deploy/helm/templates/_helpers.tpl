{{- define "holdfast.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "holdfast.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
{{ include "holdfast.commonLabels" . }}
{{- end -}}

{{- define "holdfast.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.embedded" -}}
{{- if eq .Values.store.type "embedded" }}true{{ end -}}
{{- end -}}

{{/*
How many gateways. The embedded store belongs to one process, so more are refused
here too: the schema can be switched off (--skip-schema-validation).
*/}}
{{- define "holdfast.replicas" -}}
{{- $embedded := include "holdfast.embedded" . -}}
{{- $replicas := ternary 1 2 (eq $embedded "true") -}}
{{- if not (kindIs "invalid" .Values.replicaCount) -}}
{{- $replicas = int .Values.replicaCount -}}
{{- end -}}
{{- if and $embedded (or (gt $replicas 1) .Values.autoscaling.enabled) -}}
{{- fail "the embedded store belongs to one gateway: replicaCount can be 0 or 1, without autoscaling. Use store.type redis for more" -}}
{{- end -}}
{{- $replicas -}}
{{- end -}}

{{/* Environment variables out of the Secret, and what names the store. */}}
{{- define "holdfast.storeEnv" -}}
{{- $secret := required "existingSecret is required: a Secret with GATEWAY_SECRET_KEY, GATEWAY_ADMIN_KEY and, on Redis without store.redis.url, GATEWAY_STORE" .Values.existingSecret -}}
{{- $keys := list "GATEWAY_SECRET_KEY" "GATEWAY_ADMIN_KEY" -}}
{{- if include "holdfast.embedded" . -}}
- name: GATEWAY_STORE
  # Below the mount, whose own folder belongs to the volume.
  value: embedded:/data/gateway
{{- else if .Values.store.redis.url -}}
- name: GATEWAY_STORE
  value: {{ .Values.store.redis.url | quote }}
{{- else -}}
{{- $keys = prepend $keys "GATEWAY_STORE" -}}
{{- end }}
{{- range $keys }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ . }}
{{- end }}
{{- if and (not (include "holdfast.embedded" .)) .Values.store.redis.ack }}
- name: GATEWAY_REDIS_ACK
  value: {{ .Values.store.redis.ack | quote }}
{{- end }}
{{- if .Values.extraCAsConfigMap }}
# Beside the public authorities in the image, which stay.
- name: SSL_CERT_DIR
  value: /etc/holdfast/authorities
{{- end }}
{{- end -}}

{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What the pods of gateways and of the init Job have in common. */}}
{{- define "holdfast.podBase" -}}
automountServiceAccountToken: false
# A service named gateway-... would put GATEWAY_..._PORT into the environment, and
# the gateway refuses settings it does not know.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "holdfast.podSecurity" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The ConfigMap of connectors and the keys in it: "" if there are none. */}}
{{- define "holdfast.connectorsConfigMap" -}}
{{- if and .Values.connectors .Values.connectorsConfigMap.name -}}
{{- fail "connectors and connectorsConfigMap exclude each other" -}}
{{- end -}}
{{- if .Values.connectors -}}
{{- printf "%s-connectors" (include "holdfast.name" .) -}}
{{- else -}}
{{- .Values.connectorsConfigMap.name -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.connectorsKeys" -}}
{{- $keys := list -}}
{{- range $name, $versions := .Values.connectors -}}
{{- range $version, $manifest := $versions -}}
{{- $keys = append $keys (printf "%s_%s" $name $version) -}}
{{- end -}}
{{- end -}}
{{- join "," (concat $keys (.Values.connectorsConfigMap.keys | default list)) -}}
{{- end -}}
