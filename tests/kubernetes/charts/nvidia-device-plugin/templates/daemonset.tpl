{{- if eq .Release.Namespace "default" }}{{ fail "Running in the default namespace is not recommended." }}{{ end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      {{- with .Values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      containers:
        - name: ctr
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
          env:
            - {name: DEVICE_LIST_STRATEGY, value: {{ .Values.deviceListStrategy | quote }}}
            - {name: MIG_STRATEGY, value: {{ .Values.migStrategy | quote }}}
{{- range $name, $text := .Values.config.map }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-configs, namespace: {{ $.Release.Namespace }}}
data:
  {{ $name }}: |
{{ $text | indent 4 }}
{{- end }}
