module relaybook.dev/tools/monitoring

go 1.26.8

require github.com/prometheus-operator/prometheus-operator v0.85.0
