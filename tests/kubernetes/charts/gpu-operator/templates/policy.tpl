apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-policy, namespace: {{ .Release.Namespace }}}
data:
  driver: {{ .Values.driver.enabled | quote }}
  toolkit: {{ .Values.toolkit.enabled | quote }}
  mig: {{ .Values.mig.strategy | quote }}
