package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// run starts a control plane and keeps it running until a stop is requested.
func run(ctx context.Context, opts options) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	commands := readCommands(stop)

	a, err := ensureAssets(ctx, opts, opts.programs())
	if err != nil {
		return err
	}
	began := time.Now()
	sweepFolders(opts)
	dir, lock, err := makeFolder()
	if err != nil {
		return err
	}
	defer lock.Close()
	defer os.RemoveAll(dir)

	c := &cluster{dir: dir, assets: a, deaths: make(chan *process, 64)}
	defer c.stop()
	if err := c.start(ctx, opts); err != nil {
		return err
	}
	opts.say("control-plane: ready in %.1f s", time.Since(began).Seconds())
	if opts.human {
		c.announceToPeople(opts)
	} else if err := c.announce(); err != nil {
		return err
	}

	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case p := <-c.deaths:
			if c.shouldRun(p) {
				return p.failure()
			}
		case command := <-commands:
			if err := c.obey(ctx, command); err != nil {
				return err
			}
		}
	}
}

// readCommands reads lines from stdin if it is a pipe or a socket. When it ends, the process that started us is gone,
// so the launcher stops. A terminal or /dev/null is not read.
func readCommands(stop context.CancelCauseFunc) <-chan string {
	lines := make(chan string)
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return lines
	}
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			if line := strings.TrimSpace(input.Text()); line != "" {
				lines <- line
			}
		}
		stop(stopRequest("stdin ended"))
	}()
	return lines
}

// obey carries out one command and answers with one line of JSON.
func (c *cluster) obey(ctx context.Context, command string) error {
	switch command {
	case "stop-apiserver":
		c.killAPIServer()
		return emit(map[string]any{"event": "apiserver-stopped"})
	case "start-apiserver", "restart-apiserver":
		if command == "restart-apiserver" {
			c.killAPIServer()
		}
		if c.apiServer == nil {
			if err := c.startAPIServerAgain(ctx); err != nil {
				return err
			}
		}
		return emit(map[string]any{"event": "apiserver-ready", "pid": c.apiServer.pid()})
	default:
		return emit(map[string]any{"event": "error", "message": fmt.Sprintf(
			"unknown command %q; the commands are stop-apiserver, start-apiserver and restart-apiserver", command)})
	}
}

func (c *cluster) announce() error {
	pids := map[string]int{}
	for _, p := range c.children() {
		pids[p.name] = p.pid()
	}
	return emit(struct {
		Kubeconfig string            `json:"kubeconfig"`
		Server     string            `json:"server"`
		Kubectl    string            `json:"kubectl"`
		Assets     string            `json:"assets"`
		Dir        string            `json:"dir"`
		Pids       map[string]int    `json:"pids"`
		Tokens     map[string]string `json:"tokens"`
	}{
		c.kubeconfig, c.server(), c.assets.paths["kubectl"], c.assets.dir, c.dir, pids,
		map[string]string{"admin": c.credentials.adminToken, "limited": c.credentials.limitedToken},
	})
}

func (c *cluster) announceToPeople(opts options) {
	fmt.Printf("\nA Kubernetes API server listens on %s.\n", c.server())
	if opts.rollouts {
		fmt.Printf("Deployments roll out if their pod templates set nodeName: %s.\n", nodeName)
	}
	fmt.Printf("\n  export KUBECONFIG=%s\n  export PATH=\"%s:$PATH\"   # kubectl\n", c.kubeconfig, c.assets.dir)
	fmt.Printf("\nLogs are in %s. Ctrl-C stops the control plane and deletes all its data.\n", c.dir)
}

func emit(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Println(string(line)); err != nil {
		return errors.Join(stopRequest("stdout is closed"), err)
	}
	return nil
}
