apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
        - {name: manager, image: "vault.habana.ai/habana-ai-operator/operator:{{ .Chart.Version }}"}
