module relaybook.dev/hack/image

go 1.26.0
