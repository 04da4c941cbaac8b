// Image runs the servers for `hack/image-check.sh`: receivers with TLS under four names, each with its own CA, and a
// name server. It runs until its stdin ends.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Names of the receivers. The check makes the program trust the CAs of all but the last, each in a different way.
var receivers = []string{"bundle", "extra", "secret", "stranger"}

// Domain of the receivers' names. No one can register it (RFC 6761).
const domain = ".relaybook.test"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: image FOLDER ADDRESS-OF-THE-NAME-SERVER")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("image: ", err)
	}
}

// run writes NAME.pem for each CA, and prints the port of the receivers on stdout. Then it prints a line for each
// request, with the name of the receiver, and a line for each name that the name server is asked for.
func run(folder, nameServer string) error {
	certificates, err := issue(folder)
	if err != nil {
		return err
	}
	names, err := net.ListenPacket("udp4", nameServer)
	if err != nil {
		return fmt.Errorf("the name server: %w", err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		TLSConfig: certificates.config(),
		Handler:   http.HandlerFunc(receive),
		// Aborted handshakes are expected: the sender does not trust the last receiver.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)

	ended := make(chan error, 3)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	go func() { ended <- answer(names) }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

// receive prints a request: the name of the receiver in the handshake, the webhook-id and the body.
func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		http.Error(w, "the body ended early", http.StatusBadRequest)
		return
	}
	name := strings.TrimSuffix(r.TLS.ServerName, domain)
	fmt.Printf("request %s %s %s\n", name, r.Header.Get("webhook-id"), body)
}

func write(folder, name string, data []byte) error {
	return os.WriteFile(filepath.Join(folder, name), data, 0o644)
}
