// The world around a program that runs in an empty root: receivers with TLS under four names, each with an authority of its
// own, and a name server. `hack/image-check.sh` starts it; it runs until its stdin ends.
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

// Who vouches for the receiver of that name; the check has the program trust all but the last, each in another way.
var receivers = []string{"bundle", "extra", "secret", "stranger"}

// What follows the receivers' names; nobody can own it (RFC 6761).
const domain = ".pennant.test"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: image FOLDER ADDRESS-OF-THE-NAME-SERVER")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("image: ", err)
	}
}

// run writes NAME.pem for each authority, says on stdout at which port the receivers are, and then which request came to whom
// and which name was asked for.
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
		// A handshake that the sender breaks off is what one of the receivers is for.
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

// receive says who was asked, as the handshake had it, and what was sent.
func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		http.Error(w, "cut off", http.StatusBadRequest)
		return
	}
	name := strings.TrimSuffix(r.TLS.ServerName, domain)
	fmt.Printf("request %s %s %s\n", name, r.Header.Get("webhook-id"), body)
}

func write(folder, name string, data []byte) error {
	return os.WriteFile(filepath.Join(folder, name), data, 0o644)
}
