module relaybook.dev/tools/gateway

go 1.26.8

require sigs.k8s.io/gateway-api v1.6.3
