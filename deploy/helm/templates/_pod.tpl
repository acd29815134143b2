{{/* The pod of a gateway, in a Deployment or a StatefulSet. */}}
{{- define "holdfast.podTemplate" -}}
metadata:
  labels:
    {{- include "holdfast.labels" . | nindent 4 }}
  {{- if or .Values.podAnnotations .Values.connectors }}
  annotations:
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .Values.connectors }}
    # Other connectors, other pods.
    checksum/connectors: {{ toJson . | sha256sum }}
    {{- end }}
  {{- end }}
spec:
  {{- include "holdfast.podBase" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.drainTimeoutSeconds 15 }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: gateway
      image: {{ include "holdfast.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      securityContext:
        {{- include "holdfast.containerSecurity" . | nindent 8 }}
      env:
        {{- include "holdfast.storeEnv" . | trim | nindent 8 }}
        - name: GATEWAY_LISTEN
          value: 0.0.0.0:8080
        - name: GATEWAY_ADMIN_LISTEN
          value: 0.0.0.0:9090
        - name: GATEWAY_DRAIN_TIMEOUT
          value: {{ printf "%ds" (int .Values.drainTimeoutSeconds) | quote }}
        {{- if include "holdfast.connectorsConfigMap" . }}
        - name: GATEWAY_CONNECTORS_DIR
          value: /etc/holdfast/connectors
        {{- end }}
        {{- if .Values.tlsSecret }}
        - name: GATEWAY_TLS_CERT
          value: /etc/holdfast/tls/tls.crt
        - name: GATEWAY_TLS_KEY
          value: /etc/holdfast/tls/tls.key
        {{- end }}
        {{- if include "holdfast.auditClaim" . }}
        - name: GATEWAY_AUDIT_ARCHIVE
          value: folder:/audit
        {{- end }}
        {{- range $name, $key := .Values.secretEnv }}
        - name: {{ $name }}
          valueFrom:
            secretKeyRef:
              name: {{ $.Values.existingSecret }}
              key: {{ $key }}
        {{- end }}
        {{- range $key, $value := .Values.env }}
        - name: {{ $key }}
          value: {{ $value | quote }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        - name: admin
          containerPort: 9090
      lifecycle:
        preStop:
          # Time for the endpoints to lose this pod, before it refuses new writes.
          sleep:
            seconds: {{ .Values.preStopSeconds }}
      startupProbe:
        httpGet:
          path: /healthz
          port: admin
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: 60
      readinessProbe:
        httpGet:
          path: /readyz
          port: admin
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet:
          path: /healthz
          port: admin
        periodSeconds: 10
        timeoutSeconds: 3
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "holdfast.mounts" . }}
      {{- . | nindent 6 }}
      {{- end }}
  {{- with include "holdfast.volumes" . }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The claim of the audit's archive; the embedded store keeps it beside its data. */}}
{{- define "holdfast.auditClaim" -}}
{{- if not (include "holdfast.embedded" .) -}}
{{- if and .Values.audit.existingClaim .Values.env.GATEWAY_AUDIT_ARCHIVE -}}
{{- fail "audit.existingClaim and env.GATEWAY_AUDIT_ARCHIVE exclude each other" -}}
{{- end -}}
{{- .Values.audit.existingClaim -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.mounts" -}}
{{- $connectors := include "holdfast.connectorsConfigMap" . -}}
{{- $audit := include "holdfast.auditClaim" . -}}
{{- if or (include "holdfast.embedded" .) $connectors $audit .Values.tlsSecret .Values.extraCAsConfigMap -}}
volumeMounts:
  {{- if include "holdfast.embedded" . }}
  - name: data
    mountPath: /data
  {{- end }}
  {{- if $audit }}
  - name: audit
    mountPath: /audit
  {{- end }}
  {{- if $connectors }}
  - name: connectors
    mountPath: /etc/holdfast/connectors
    readOnly: true
  {{- end }}
  {{- if .Values.tlsSecret }}
  - name: tls
    mountPath: /etc/holdfast/tls
    readOnly: true
  {{- end }}
  {{- if .Values.extraCAsConfigMap }}
  - name: authorities
    mountPath: /etc/holdfast/authorities
    readOnly: true
  {{- end }}
{{- end }}
{{- end -}}

{{/* The volumes but for the data, which a StatefulSet claims. */}}
{{- define "holdfast.volumes" -}}
{{- $connectors := include "holdfast.connectorsConfigMap" . -}}
{{- $audit := include "holdfast.auditClaim" . -}}
{{- if or $connectors $audit .Values.tlsSecret .Values.extraCAsConfigMap -}}
volumes:
  {{- if $audit }}
  - name: audit
    persistentVolumeClaim:
      claimName: {{ $audit }}
  {{- end }}
  {{- if $connectors }}
  - name: connectors
    configMap:
      name: {{ $connectors }}
      items:
        {{- $keys := include "holdfast.connectorsKeys" . }}
        {{- range splitList "," (required "connectorsConfigMap.keys must list the keys to load" $keys) }}
        - key: {{ . }}
          path: {{ . | replace "_" "/" }}/connector.yaml
        {{- end }}
  {{- end }}
  {{- if .Values.tlsSecret }}
  - name: tls
    secret:
      secretName: {{ .Values.tlsSecret }}
  {{- end }}
  {{- if .Values.extraCAsConfigMap }}
  - name: authorities
    configMap:
      name: {{ .Values.extraCAsConfigMap }}
  {{- end }}
{{- end }}
{{- end -}}
