// Request sends one request to the API of a forge, for the demo of promotions. It prints the answer, or one field of it.
//
//	request --ca ca.pem --token TOKEN GET https://127.0.0.1:3000/api/v1/user
//	request --ca ca.pem --token TOKEN --field number POST https://127.0.0.1:3000/api/v1/repos/a/b/pulls '{"head": "x"}'
//
// It replaces curl and jq, which may not be installed. It uses only the standard library and compiles in a second.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// No answer that the demo needs is larger.
const maxAnswer = 4 << 20

func main() {
	ca := flag.String("ca", "", "PEM `file` with the only certificate to trust")
	token := flag.String("token", "", "access `token`")
	field := flag.String("field", "", "print only this `field` of the answer, such as user.login")
	flag.Parse()
	answer, err := send(*ca, *token, flag.Args())
	if err == nil && *field != "" {
		answer, err = read(answer, *field)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "request: %s\n", err)
		os.Exit(1)
	}
	fmt.Println(answer)
}

// send returns the body of an answer of success.
func send(ca, token string, arguments []string) (string, error) {
	if len(arguments) < 2 || len(arguments) > 3 {
		return "", errors.New("usage: request [flags] METHOD URL [BODY]")
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("%s contains no certificate", ca)
	}
	// A transport of our own has no proxy.
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	request, err := http.NewRequest(arguments[0], arguments[1], strings.NewReader(strings.Join(arguments[2:], "")))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "token "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return "", fmt.Errorf("%s %s: %s: %s", request.Method, request.URL, response.Status, body)
	}
	return strings.TrimRight(string(body), "\n"), nil
}

// read returns a field of a JSON object. Dots are between the names of nested objects.
func read(object, field string) (string, error) {
	var value any
	if err := json.Unmarshal([]byte(object), &value); err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(field, ".") {
		fields, ok := value.(map[string]any)
		if !ok || fields[name] == nil {
			return "", fmt.Errorf("the answer has no field %s", field)
		}
		value = fields[name]
	}
	return fmt.Sprint(value), nil
}
