{{- define "perago.name" -}}
{{- if contains "perago" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-perago" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* Labels that never change, so that a deployment can select by them. */}}
{{- define "perago.selector" -}}
app.kubernetes.io/name: perago
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perago.labels" -}}
{{ include "perago.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "perago.image" -}}
{{- $repository := required "image.repository is required: where you pushed the image of deploy/container/Containerfile" .Values.image.repository -}}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/*
Nine tenths of a memory limit, in bytes, so that a worker collects its garbage
before it meets the limit.
*/}}
{{- define "perago.memory" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- if not (and (hasKey $units $unit) (regexMatch "^[0-9]+[A-Za-z]*$" .)) }}{{ fail (printf "the memory limit %s: write a whole number with Ki, Mi, Gi, k, M or G" .) }}{{ end -}}
{{- div (mul (trimSuffix $unit . | int64) (get $units $unit | int64) 9) 10 -}}
{{- end }}

{{/*
The environment of one worker, by name: what is common, what is the worker's own,
and what the values add, the last word being the worker's env.
*/}}
{{- define "perago.environment" -}}
{{- $root := .root }}{{ $worker := .worker }}{{ $of := .of }}
{{- $all := dict
  "CONDUCTOR_SERVER_URL" (required "conductor.url is required" $root.Values.conductor.url)
  "LAKECTL_SERVER_ENDPOINT_URL" (required "lakefs.url is required" $root.Values.lakefs.url)
  "LAKECTL_CREDENTIALS_ACCESS_KEY_ID_FILE" "/run/secrets/lakefs/key"
  "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY_FILE" "/run/secrets/lakefs/secret"
  "PERAGO_ALLOWED_REPOSITORIES" (required "allowedRepositories is required: the repositories that tasks may touch" (join "," $root.Values.allowedRepositories))
  "PERAGO_CONDUCTOR_ID" (required "conductor.id is required: the same for all workers of one Conductor" $root.Values.conductor.id)
  "PERAGO_CONCURRENCY" (toString $of.concurrency)
  "PERAGO_SHUTDOWN_GRACE" (printf "%ds" (int $of.shutdownGraceSeconds))
  "PERAGO_HTTP_ADDR" ":9461"
  "PERAGO_LOG_LEVEL" $root.Values.logLevel
}}
{{- with $root.Values.conductor.uiURL }}{{ $_ := set $all "PERAGO_CONDUCTOR_UI_URL" . }}{{ end }}
{{- if $root.Values.conductor.existingSecret }}
{{- $_ := set $all "CONDUCTOR_AUTH_KEY_FILE" "/run/secrets/conductor/key" }}
{{- $_ := set $all "CONDUCTOR_AUTH_SECRET_FILE" "/run/secrets/conductor/secret" }}
{{- end }}
{{- with $of.taskTypes }}{{ $_ := set $all "PERAGO_TASK_TYPES" (join "," .) }}{{ end }}
{{- with $of.domains }}{{ $_ := set $all "PERAGO_DOMAINS" (join "," .) }}{{ end }}
{{- if eq $worker "stage" }}
{{- $_ := set $all "PERAGO_WORKSPACE_ROOT" $of.workspace.path }}
{{- if not (kindIs "invalid" $of.uploadConcurrency) }}{{ $_ := set $all "PERAGO_UPLOAD_CONCURRENCY" ($of.uploadConcurrency | int64 | toString) }}{{ end }}
{{- if not (kindIs "invalid" $of.uploadRateLimit) }}{{ $_ := set $all "PERAGO_UPLOAD_RATE_LIMIT" ($of.uploadRateLimit | int64 | toString) }}{{ end }}
{{- with $of.allowedImports }}{{ $_ := set $all "PERAGO_ALLOWED_IMPORTS" (join "," .) }}{{ end }}
{{- end }}
{{- if has $worker (list "stage" "publish") }}{{ $_ := set $all "PERAGO_REQUIRE_HARD_FENCE" (toString $root.Values.publish.requireHardFence) }}{{ end }}
{{- if has $worker (list "stage" "cleanup") }}
{{- $_ := set $all "PERAGO_SWEEP_INTERVAL" $root.Values.sweep.interval }}
{{- $_ := set $all "PERAGO_SWEEP_TTL" $root.Values.sweep.ttl }}
{{- $_ := set $all "PERAGO_UNKNOWN_TTL" $root.Values.sweep.unknownTTL }}
{{- end }}
{{- with dig "limits" "memory" "" ($of.resources | default dict) }}{{ $_ := set $all "GOMEMLIMIT" (include "perago.memory" (toString .)) }}{{ end }}
{{- range $name, $value := merge (dict) $of.env $root.Values.env }}{{ $_ := set $all $name (toString $value) }}{{ end }}
{{- range $name, $value := $all }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
