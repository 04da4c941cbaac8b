module relaybook.dev/hack/receiver

go 1.26.0
