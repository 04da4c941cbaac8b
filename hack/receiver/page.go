package main

import (
	"html/template"
	"net/http"
	"net/url"
)

// message is one request, as the page shows it.
type message struct {
	Number, Status                   int
	Time, Path, Text                 string
	IsRepeated, IsRefused, HasNoText bool
}

// How many messages the page shows. The oldest are dropped.
const kept = 200

// A control is a path that is not a receiver: the page for a browser, and its forms.
func (r *receiver) control(w http.ResponseWriter, request *http.Request) bool {
	switch {
	case request.Method == http.MethodGet && request.URL.Path == "/":
		r.show(w)
	case request.Method == http.MethodGet && request.URL.Path == "/-/page":
		http.Redirect(w, request, r.linked(), http.StatusSeeOther)
	case request.Method == http.MethodPost && request.URL.Path == "/-/refuse":
		r.Lock()
		r.refuses = request.FormValue("refuse") == "true"
		r.Unlock()
		http.Redirect(w, request, "/", http.StatusSeeOther)
	default:
		return false
	}
	return true
}

func (r *receiver) show(w http.ResponseWriter) {
	r.Lock()
	defer r.Unlock()
	w.Header().Set("content-type", "text/html; charset=utf-8")
	_ = page.Execute(w, struct {
		Messages []message
		Refuses  bool
		HasPage  bool
	}{r.messages, r.refuses, r.page != ""})
}

// linked returns the address of the audit page. Its first address can be opened once.
func (r *receiver) linked() string {
	r.Lock()
	defer r.Unlock()
	first := r.page
	if address, err := url.Parse(first); err == nil {
		r.page = address.Scheme + "://" + address.Host + "/"
	}
	return first
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="2">
<title>Chat</title>
<style>
  body { font: 16px/1.4 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
  ol { list-style: none; padding: 0; }
  li { border-left: 4px solid #2f7d4f; padding: .2rem .8rem; margin: .6rem 0; overflow-wrap: anywhere; }
  li.refused { border-color: #b3261e; }
  small { opacity: .75; }
</style>
<h1>Chat</h1>
<p>This page plays a chat service. It shows each request that Relaybook sends to it.
{{if .HasPage}}<a href="/-/page" target="_blank">Open the audit page of Relaybook</a>.{{end}}</p>
<form method="post" action="/-/refuse">
{{if .Refuses}}<input type="hidden" name="refuse" value="false"><button>Answer 200 again</button> It answers 503 now.
{{else}}<input type="hidden" name="refuse" value="true"><button>Answer 503 from now on</button>{{end}}
</form>
<ol>
{{range .Messages}}<li{{if .IsRefused}} class="refused"{{end}}>{{if .HasNoText}}{{.Path}}{{else}}{{.Text}}{{end}}<br>
<small>#{{.Number}} at {{.Time}}, answered {{.Status}}{{if .IsRepeated}}, sent again with the same webhook-id{{end}}</small></li>
{{else}}<li>No message yet. The state that Relaybook finds first is not a change.</li>{{end}}
</ol>
</html>
`))
