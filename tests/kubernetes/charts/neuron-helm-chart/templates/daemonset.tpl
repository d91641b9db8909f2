{{- if .Values.devicePlugin.enabled }}
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: neuron-device-plugin, namespace: {{ .Values.devicePlugin.namespaceOverride }}}
spec:
  selector: {matchLabels: {name: neuron-device-plugin-ds}}
  template:
    metadata: {labels: {name: neuron-device-plugin-ds}}
    spec:
      tolerations: {{ .Values.devicePlugin.tolerations | toJson }}
      containers:
        - name: neuron-device-plugin
          image: "{{ .Values.devicePlugin.image.repository }}:{{ .Values.devicePlugin.image.tag }}"
{{- end }}
{{- if .Values.npd.enabled }}
---
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Values.npd.namespaceOverride }}}
{{- end }}
