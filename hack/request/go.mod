module relaybook.dev/hack/request

go 1.26.0
