// Gotemplate renders templates as Argo CD Notifications does, to compare the templates that `relaybook convert argocd` makes of them.
//
// In: lines of JSON on the standard input, each with a template and its data:
//
//	{"source": "{{.app.metadata.name | upper}}", "data": {"app": {"metadata": {"name": "shop"}}}}
//
// Out: for each of them a line of JSON, with either the text or the error: {"text": "SHOP"} or {"error": "…"}. The order is the same.
//
// The functions are those of Go and of sprig, without access to the environment. As in Argo CD, `repo` in the data has functions
// (https://github.com/argoproj/argo-cd/blob/master/util/notification/expression/repo/repo.go). They know the addresses with a scheme, and
// `git@HOST:PATH`.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/url"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

type question struct {
	Source string         `json:"source"`
	Data   map[string]any `json:"data"`
}

func main() {
	buffer := bufio.NewWriter(os.Stdout)
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(buffer)
	for decoder.More() {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			log.Fatal(err)
		}
		text, err := render(asked)
		given := map[string]string{"text": text}
		if err != nil {
			given = map[string]string{"error": err.Error()}
		}
		if err := encoder.Encode(given); err != nil {
			log.Fatal(err)
		}
	}
	if err := buffer.Flush(); err != nil {
		log.Fatal(err)
	}
}

func render(asked question) (string, error) {
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	parsed, err := template.New("message").Funcs(functions).Parse(asked.Source)
	if err != nil {
		return "", err
	}
	data := map[string]any{"repo": map[string]any{"FullNameByRepoURL": fullName, "RepoURLToHTTPS": toHTTPS}}
	for name, value := range asked.Data {
		data[name] = value
	}
	var text strings.Builder
	err = parsed.Execute(&text, data)
	return text.String(), err
}

// fullName returns the first two parts of the path, without `.git`.
func fullName(address string) string {
	path := strings.TrimSuffix(parse(address).Path, ".git")
	parts := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	if len(parts) < 2 {
		return path
	}
	return parts[0] + "/" + parts[1]
}

func toHTTPS(address string) string {
	parsed := parse(address)
	parsed.Scheme, parsed.User = "https", nil
	return parsed.String()
}

// parse panics at an invalid address, as in Argo CD. Go's templates make an error of it.
func parse(address string) *url.URL {
	host, path, found := strings.Cut(address, ":")
	if found && !strings.HasPrefix(path, "//") {
		return &url.URL{Scheme: "ssh", Host: host[strings.LastIndex(host, "@")+1:], Path: path}
	}
	parsed, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return parsed
}
