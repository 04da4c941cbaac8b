package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The module file travels inside the launcher, which therefore builds the same programs wherever it is started from.
var (
	//go:embed go.mod
	goMod []byte
	//go:embed go.sum
	goSum []byte
)

// A program is one part of the control plane and the package that it is built from.
type program struct {
	name, pkg string
}

var (
	basePrograms = []program{
		{"etcd", "go.etcd.io/etcd/server/v3"},
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	}
	controllerManager = program{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"}
	kwok              = program{"kwok", "sigs.k8s.io/kwok/cmd/kwok"}
)

// assets says where the programs are: path by name, and the folder with the base ones.
type assets struct {
	dir   string
	paths map[string]string
}

func build(ctx context.Context, opts options) error {
	a, err := ensureAssets(ctx, opts)
	if err != nil {
		return err
	}
	fmt.Println(a.dir)
	return nil
}

// ensureAssets finds the programs in KUBEBUILDER_ASSETS or the cache, and builds those that are missing.
func ensureAssets(ctx context.Context, opts options) (*assets, error) {
	wanted := append([]program(nil), basePrograms...)
	if len(opts.controllers()) > 0 {
		wanted = append(wanted, controllerManager)
	}
	if opts.rollouts {
		wanted = append(wanted, kwok)
	}
	a := &assets{paths: map[string]string{}}
	var missing []program
	if given := os.Getenv("KUBEBUILDER_ASSETS"); given != "" {
		dir, err := filepath.Abs(given)
		if err != nil {
			return nil, err
		}
		a.dir = dir
		for _, p := range basePrograms {
			// A wrong folder is a mistake to be told, not a reason to build for minutes.
			if !isProgram(filepath.Join(dir, p.name)) {
				return nil, fmt.Errorf("KUBEBUILDER_ASSETS is %s, which has no %s; unset it to have one built", given, p.name)
			}
		}
		missing = a.look(dir, wanted)
	} else {
		missing = wanted
	}
	if len(missing) == 0 {
		return a, nil
	}

	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	if a.dir == "" {
		a.dir = cache
	}
	if len(a.look(cache, missing)) == 0 {
		return a, nil
	}
	unlock, err := lockFolder(ctx, opts, cache)
	if err != nil {
		return nil, err
	}
	defer unlock()
	missing = a.look(cache, missing) // whoever held the lock may have built them
	if len(missing) > 0 {
		if err := compile(ctx, opts, cache, missing); err != nil {
			return nil, err
		}
		if still := a.look(cache, missing); len(still) > 0 {
			return nil, fmt.Errorf("go build made no %s", still[0].name)
		}
	}
	return a, nil
}

// look takes what a folder has, and returns what it lacks.
func (a *assets) look(dir string, programs []program) (missing []program) {
	for _, p := range programs {
		if file := filepath.Join(dir, p.name); isProgram(file) {
			a.paths[p.name] = file
		} else {
			missing = append(missing, p)
		}
	}
	return missing
}

func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// linkerFlags set the version, without which clients refuse the server. The version is that of go.mod.
func linkerFlags() (string, error) {
	v := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)`).FindSubmatch(goMod)
	if v == nil {
		return "", errors.New("go.mod requires no k8s.io/kubernetes")
	}
	const pkg = "k8s.io/component-base/version"
	return fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, v[1], pkg, v[2], pkg, v[3]), nil
}

// cacheFolder is keyed by all that decides what is built.
func cacheFolder() (string, error) {
	flags, err := linkerFlags()
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s/%s\n%s\n", runtime.GOOS, runtime.GOARCH, flags)
	key.Write(goSum)
	dir := filepath.Join(base, "pennant", "control-plane", fmt.Sprintf("%x", key.Sum(nil))[:16])
	return dir, os.MkdirAll(dir, 0o755)
}

// lockFolder lets one builder at a time into a folder. The lock goes with the process that holds it.
func lockFolder(ctx context.Context, opts options, dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := time.Duration(0); ; waited += 500 * time.Millisecond {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if waited%(20*time.Second) == 0 {
			opts.say("control-plane: another process is building the control plane; waiting for it (%.0f s)", waited.Seconds())
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// compile builds programs beside their place and renames them, so that nobody ever sees half a one.
func compile(ctx context.Context, opts options, dir string, programs []program) error {
	// Left by a builder that was killed; the lock says that none is at work.
	leftovers, _ := filepath.Glob(filepath.Join(dir, ".build-*"))
	for _, old := range leftovers {
		_ = os.RemoveAll(old)
	}
	work, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for name, data := range map[string][]byte{"go.mod": goMod, "go.sum": goSum} {
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	flags, err := linkerFlags()
	if err != nil {
		return err
	}
	out := filepath.Join(work, "out") + string(filepath.Separator)
	args := []string{"build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags", flags, "-o", out}
	var names []string
	for _, p := range programs {
		args = append(args, p.pkg)
		names = append(names, p.name)
	}

	began := time.Now()
	opts.say("control-plane: building %s from their Go modules.", strings.Join(names, ", "))
	opts.say("control-plane: this happens once; on two cores it needs about 4 minutes, 1 more with --aggregation, 4 more with --rollouts.")
	cmd := exec.Command("go", args...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var packages atomic.Int64
	var words []string // what go said besides the packages: downloads, errors
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := startChild(cmd); err != nil {
		return fmt.Errorf("start go, which must be on the PATH: %w", err)
	}
	finished := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			// With -v, a line without a space is the path of a package that was compiled.
			if line := lines.Text(); strings.Contains(line, " ") {
				words = append(words, line)
			} else {
				packages.Add(1)
			}
		}
		finished <- cmd.Wait()
	}()

	every := time.NewTicker(20 * time.Second)
	defer every.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			// The whole group: go leaves its compilers behind otherwise.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-finished
			return context.Cause(ctx)
		case <-every.C:
			opts.say("control-plane: still building: %.0f s, %d packages compiled", time.Since(began).Seconds(), packages.Load())
		case err := <-finished:
			if err != nil {
				if len(words) > 40 {
					words = words[len(words)-40:]
				}
				return fmt.Errorf("go build failed (%w):\n  %s", err, strings.Join(words, "\n  "))
			}
			running = false
		}
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(out, outputName(p.pkg)), filepath.Join(dir, p.name)); err != nil {
			return err
		}
	}
	opts.say("control-plane: built in %.0f s; kept in %s", time.Since(began).Seconds(), dir)
	return nil
}

// outputName is how go build calls the program of a package: the last part of its path that is not a major version.
func outputName(pkg string) string {
	name := path.Base(pkg)
	if regexp.MustCompile(`^v\d+$`).MatchString(name) {
		name = path.Base(path.Dir(pkg))
	}
	return name
}
