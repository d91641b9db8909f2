apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Chart.Name }}-device-plugin-daemonset
  namespace: {{ .Release.Namespace }}
spec:
  selector: {matchLabels: {name: {{ .Chart.Name }}-dp-ds}}
  template:
    metadata: {labels: {name: {{ .Chart.Name }}-dp-ds}}
    spec:
      tolerations: {{ .Values.tolerations | toJson }}
      containers:
        - name: {{ .Chart.Name }}-dp-cntr
          image: "{{ .Values.dp.image.repository }}:{{ .Values.dp.image.tag | default .Chart.AppVersion }}"
