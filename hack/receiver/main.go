// Receiver is a webhook receiver for the demo. It prints each request when it arrives, with a number, the relevant
// headers and the body. A browser sees the messages at the path /, and can make it answer 503.
//
//	cd hack/receiver
//	go run . --port 8081
//	go run . --port 8082 --fail-first 2
//
// It uses only the standard library and compiles in a second, so that the demo does not wait for it.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// No request of a notification is larger.
const maxBody = 4 << 20

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0 chooses a free port and prints it")
	failFirst := flag.Int("fail-first", 0, "answer the first `N` requests with 503, to see the retries")
	record := flag.String("record", "", "also append one line for each request to this `file`, with tabs between the fields: number, "+
		"Unix milliseconds, status code, webhook-id, path, body, and the field text of the body")
	page := flag.String("page", "", "the first `address` of the audit page, to which the page for browsers has a link")
	flag.Parse()
	if err := serve(*port, *failFirst, *record, *page); err != nil {
		fmt.Fprintf(os.Stderr, "receiver: %s\n", err)
		os.Exit(1)
	}
}

func serve(port, failFirst int, record, page string) error {
	r := &receiver{failFirst: failFirst, first: map[string]int{}, record: io.Discard, page: page}
	if record != "" {
		file, err := os.OpenFile(record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		r.record = file
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return http.Serve(listener, r)
}

// A receiver counts its requests. It holds the lock until a request is printed, so that numbers, lines and answers have
// the same order.
type receiver struct {
	sync.Mutex
	requests, failFirst int
	first               map[string]int // number of the first request with this webhook-id
	record              io.Writer
	messages            []message
	refuses             bool   // every request, until somebody clicks on the page
	page                string // the audit page
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if r.control(w, request) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, thanks := r.take(request, body)
	w.WriteHeader(status)
	fmt.Fprintln(w, thanks)
}

// take counts and prints a request. It returns the status code and the text of the answer.
func (r *receiver) take(request *http.Request, body []byte) (status int, thanks string) {
	r.Lock()
	defer r.Unlock()
	r.requests++
	status, thanks = http.StatusOK, "thank you"
	if r.requests <= r.failFirst || r.refuses {
		status, thanks = http.StatusServiceUnavailable, "not now"
	}
	now, repeats := time.Now(), ""
	id := request.Header.Get("webhook-id")
	if first, known := r.first[id]; known {
		repeats = fmt.Sprintf("  repeats #%d (same webhook-id)", first)
	} else if id != "" {
		r.first[id] = r.requests
	}

	compact, pretty, text := read(body)
	// Write errors are ignored: a full disk or a closed terminal must not change the answer to the sender.
	fmt.Printf("\n#%d  %s  %s %s  -> %d%s\n%s", r.requests, now.UTC().Format("15:04:05.000Z"), request.Method, request.URL.RequestURI(),
		status, repeats, shown(request.Header, pretty))
	r.messages = append(r.messages, message{
		Number: r.requests, Status: status, Time: now.Format("15:04:05"), Path: request.URL.Path, Text: text,
		IsRepeated: repeats != "", IsRefused: status != http.StatusOK, HasNoText: text == "",
	})
	r.messages = r.messages[max(0, len(r.messages)-kept):]
	if id == "" {
		id = "-"
	}
	fmt.Fprintf(r.record, "%d\t%d\t%d\t%s\t%s\t%s\t%s\n", r.requests, now.UnixMilli(), status, id, request.URL.Path, compact, text)
	return status, thanks
}

// read returns a body in one line and with indentation, and its field text, which a chat shows. Fields of objects are
// sorted by name.
func read(body []byte) (compact, pretty, text string) {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return inOneLine(string(body)), string(body), ""
	}
	if object, ok := value.(map[string]any); ok {
		said, _ := object["text"].(string)
		text = inOneLine(said)
	}
	return encode(value, ""), encode(value, "  "), text
}

func encode(value any, indent string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	_ = encoder.Encode(value) // cannot fail: the value was decoded from JSON
	return strings.TrimRight(out.String(), "\n")
}

func inOneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// shown returns what is printed below the first line of a request: the relevant headers, and the body.
func shown(headers http.Header, body string) string {
	var out strings.Builder
	for _, name := range []string{"content-type", "user-agent", "webhook-id", "webhook-timestamp"} {
		if value := headers.Get(name); value != "" {
			fmt.Fprintf(&out, "    %s: %s\n", name, value)
		}
	}
	// Print the scheme, but not the secret.
	if scheme, _, found := strings.Cut(headers.Get("authorization"), " "); found {
		fmt.Fprintf(&out, "    authorization: %s ****\n", scheme)
	} else if scheme != "" {
		fmt.Fprintln(&out, "    authorization: ****")
	}
	for line := range strings.Lines(strings.TrimRight(body, " \r\n")) {
		fmt.Fprintf(&out, "    | %s\n", strings.TrimRight(line, "\r\n"))
	}
	return out.String()
}
