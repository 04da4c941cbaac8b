package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// nodeName is the name of the node that kwok simulates.
const nodeName = "node-0"

// On a loaded machine, a start needs many times the usual 3 seconds. A start that hangs must still end.
const startDeadline = 2 * time.Minute

//go:embed stages.yaml
var stages []byte

var errPortLost = errors.New("another process took the port")

// A cluster is one running control plane. Only one goroutine uses it.
type cluster struct {
	dir         string
	assets      *assets
	credentials *credentials
	kubeconfig  string
	client      *http.Client
	deaths      chan *process // every child that ended, also those that were stopped on purpose

	etcdPort, peerPort, apiPort        int
	etcd, apiServer, controllers, kwok *process // nil: not running
}

func (c *cluster) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// children returns the processes that should be running.
func (c *cluster) children() (running []*process) {
	for _, p := range []*process{c.kwok, c.controllers, c.apiServer, c.etcd} {
		if p != nil {
			running = append(running, p)
		}
	}
	return running
}

func (c *cluster) shouldRun(p *process) bool { return slices.Contains(c.children(), p) }

// start starts all processes. If another process takes one of the chosen ports first, it tries again with new ports.
func (c *cluster) start(ctx context.Context, opts options) (err error) {
	if c.credentials, err = makeCredentials(c.dir); err != nil {
		return err
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(c.credentials.ca)
	c.client = &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority}},
	}
	for attempt := 1; ; attempt++ {
		err = c.startOnFreePorts(ctx)
		if err == nil {
			break
		}
		if attempt == 5 || !errors.Is(err, errPortLost) {
			return err
		}
		opts.say("control-plane: %s; trying others", err)
		c.stop()
		_ = os.RemoveAll(filepath.Join(c.dir, "etcd"))
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, c.credentials.kubeconfig(c.server()), 0o600); err != nil {
		return err
	}
	if opts.rollouts {
		// The node must exist before the controllers create pods of Deployments for it.
		if err := c.createNode(); err != nil {
			return err
		}
	}
	if names := opts.controllers(); len(names) > 0 {
		if err := c.startControllers(names); err != nil {
			return err
		}
	}
	if opts.rollouts {
		return c.startKwok(ctx)
	}
	return nil
}

// controllers returns the names of the controllers of kube-controller-manager to run. If there are none, the program
// does not run.
func (o options) controllers() (names []string) {
	if o.rollouts {
		names = append(names, "deployment-controller", "replicaset-controller")
	}
	if o.aggregation {
		names = append(names, "clusterrole-aggregation-controller")
	}
	return names
}

func (c *cluster) startOnFreePorts(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.etcdPort, c.peerPort, c.apiPort = ports[0], ports[1], ports[2]
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.startAPIServer(ctx)
}

func (c *cluster) launch(name string, env []string, args ...string) (*process, error) {
	p, err := start(c.dir, name, c.assets.paths[name], env, args...)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.done
		c.deaths <- p
	}()
	return p, nil
}

func (c *cluster) startEtcd(ctx context.Context) (err error) {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.peerPort)
	c.etcd, err = c.launch("etcd", nil,
		"--name=etcd",
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--unsafe-no-fsync", // no data is kept after the run
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=etcd="+peer,
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	return c.await(ctx, c.etcd, func() error { return c.get(client+"/health", nil) })
}

func (c *cluster) startAPIServer(ctx context.Context) (err error) {
	c.apiServer, err = c.launch("kube-apiserver", nil,
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdPort),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort),
		"--cert-dir="+filepath.Join(c.dir, "certs"),
		"--tls-cert-file="+c.credentials.certFile,
		"--tls-private-key-file="+c.credentials.keyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.credentials.serviceAccountKeyFile,
		"--service-account-signing-key-file="+c.credentials.serviceAccountKeyFile,
		"--token-auth-file="+c.credentials.tokenFile,
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		// No controller creates the service accounts and tokens that this plugin requires.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	)
	if err != nil {
		return err
	}
	return c.await(ctx, c.apiServer, func() error { return c.get(c.server()+"/readyz", nil) })
}

// startAPIServerAgain uses the old port, because clients know it. It retries if the port is in use: meanwhile the
// kernel may have given it to an outgoing connection of another process, which ends soon.
func (c *cluster) startAPIServerAgain(ctx context.Context) error {
	for began := time.Now(); ; {
		err := c.startAPIServer(ctx)
		if !errors.Is(err, errPortLost) || time.Since(began) > startDeadline {
			return err
		}
		c.apiServer = nil
	}
}

// killAPIServer kills the API server, as in a crash.
func (c *cluster) killAPIServer() {
	if p := c.apiServer; p != nil {
		c.apiServer = nil
		p.kill()
	}
}

// startControllers runs these controllers of kube-controller-manager and no others.
func (c *cluster) startControllers(names []string) (err error) {
	c.controllers, err = c.launch("controllers", nil, "--kubeconfig="+c.kubeconfig, "--controllers="+strings.Join(names, ","))
	return err
}

func (c *cluster) createNode() error {
	node := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,
		"annotations":{"kwok.x-k8s.io/node":"fake"},"labels":{"kubernetes.io/hostname":%q}}}`, nodeName, nodeName)
	if err := c.post(c.server()+"/api/v1/nodes", node); err != nil {
		return fmt.Errorf("create the node: %w", err)
	}
	return nil
}

// startKwok starts kwok, which simulates the node and its pods, and waits until the node is ready.
func (c *cluster) startKwok(ctx context.Context) (err error) {
	stagesFile := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(stagesFile, stages, 0o600); err != nil {
		return err
	}
	c.kwok, err = c.launch("kwok", []string{"KWOK_WORKDIR=" + filepath.Join(c.dir, "kwok")},
		"--kubeconfig="+c.kubeconfig,
		"--config="+stagesFile,
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-lease-duration-seconds=0", // no node controller looks at leases
		"--node-port=0",                   // serves nothing
	)
	if err != nil {
		return err
	}
	return c.await(ctx, c.kwok, c.nodeIsReady)
}

func (c *cluster) nodeIsReady() error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := c.get(c.server()+"/api/v1/nodes/"+nodeName, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errors.New("the node is not Ready yet")
}

// await repeats a check until it succeeds, a child that should run has ended, or the deadline has passed.
func (c *cluster) await(ctx context.Context, starting *process, check func() error) error {
	deadline := time.After(startDeadline)
	for {
		err := check()
		if err == nil {
			return nil
		}
		for _, p := range c.children() {
			if !p.ended() {
				continue
			}
			if lostPort(p) {
				return fmt.Errorf("%s: %w", p.name, errPortLost)
			}
			return p.failure()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("%s is not ready after %s (%w); the end of its log:\n%s",
				starting.name, startDeadline, err, tail(starting.log, 30))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// stop stops the clients before the server, and the server before etcd. In the reverse order, each would spend its last
// seconds trying to reconnect. The patience is short: no data is kept that a kill could damage, and an API server with
// a single open watch would need a minute to stop.
func (c *cluster) stop() {
	const patience = time.Second
	stopAll(patience, c.kwok, c.controllers, c.apiServer)
	stopAll(patience, c.etcd)
	c.kwok, c.controllers, c.apiServer, c.etcd = nil, nil, nil, nil
}

// get reads a resource as admin. If `into` is not nil, it decodes the resource into it.
func (c *cluster) get(url string, into any) error {
	return c.call(http.MethodGet, url, "", into)
}

func (c *cluster) post(url, body string) error {
	return c.call(http.MethodPost, url, body, nil)
}

func (c *cluster) call(method, url, body string, into any) error {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	if strings.HasPrefix(url, "https:") {
		request.Header.Set("Authorization", "Bearer "+c.credentials.adminToken)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// freePorts finds free ports by binding to port 0, all at the same time so that they differ. Another process may still
// bind one of them before our child does. Then the start fails with errPortLost.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func lostPort(p *process) bool {
	return strings.Contains(tail(p.log, 30), "address already in use")
}
