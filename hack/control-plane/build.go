package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The module travels inside the launcher, which therefore builds the same programs wherever it is started from.
//
//go:embed go.mod go.sum programs/*.go
var module embed.FS

// All programs are links to this one, which looks at the name that it is called by.
const allInOne = "programs"

var (
	// What KUBEBUILDER_ASSETS must have, as envtest wants it.
	basePrograms = []string{"etcd", "kube-apiserver", "kubectl"}
	// What only some need.
	otherPrograms = []string{"controllers", "kwok"}
)

// assets says where the programs are: path by name, and the folder with the base ones.
type assets struct {
	dir   string
	paths map[string]string
}

func build(ctx context.Context, opts options) error {
	a, err := ensureAssets(ctx, opts, slices.Concat(basePrograms, otherPrograms))
	if err != nil {
		return err
	}
	fmt.Println(a.dir)
	return nil
}

// programs are those that a cluster with these options takes.
func (o options) programs() []string {
	if len(o.controllers()) > 0 {
		return slices.Concat(basePrograms, otherPrograms)
	}
	return basePrograms
}

// ensureAssets finds the programs in KUBEBUILDER_ASSETS or the cache, and builds them if one is in neither.
func ensureAssets(ctx context.Context, opts options, wanted []string) (*assets, error) {
	a := &assets{paths: map[string]string{}}
	var missing []string
	if given := os.Getenv("KUBEBUILDER_ASSETS"); given != "" {
		dir, err := filepath.Abs(given)
		if err != nil {
			return nil, err
		}
		a.dir = dir
		for _, name := range basePrograms {
			// A wrong folder is a mistake to be told, not a reason to build for minutes.
			if !isProgram(filepath.Join(dir, name)) {
				return nil, fmt.Errorf("KUBEBUILDER_ASSETS is %s, which has no %s; unset it to have one built", given, name)
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
		if err := compile(ctx, opts, cache); err != nil {
			return nil, err
		}
		if still := a.look(cache, missing); len(still) > 0 {
			return nil, fmt.Errorf("go build made no %s", still[0])
		}
	}
	return a, nil
}

// look takes what a folder has, and returns what it lacks.
func (a *assets) look(dir string, programs []string) (missing []string) {
	for _, name := range programs {
		if file := filepath.Join(dir, name); isProgram(file) {
			a.paths[name] = file
		} else {
			missing = append(missing, name)
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
	goMod, err := module.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
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
	for _, file := range []string{"go.sum", "programs/main.go", "programs/controllers.go"} {
		data, err := module.ReadFile(file)
		if err != nil {
			return "", err
		}
		key.Write(data)
	}
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

// compile builds the programs beside their place and renames them, so that nobody ever sees half a one.
func compile(ctx context.Context, opts options, dir string) error {
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
	if err := os.CopyFS(work, module); err != nil {
		return err
	}
	flags, err := linkerFlags()
	if err != nil {
		return err
	}
	out := filepath.Join(work, "out")
	args := []string{"build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags", flags, "-o", out, "./programs"}

	began := time.Now()
	opts.say("control-plane: building %s from their Go modules.", strings.Join(slices.Concat(basePrograms, otherPrograms), ", "))
	opts.say("control-plane: this happens once; on two cores it needs about 5 minutes.")
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
	if err := os.Rename(out, filepath.Join(dir, allInOne)); err != nil {
		return err
	}
	for _, name := range slices.Concat(basePrograms, otherPrograms) {
		link := filepath.Join(dir, name)
		if err := os.Symlink(allInOne, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	opts.say("control-plane: built in %.0f s; kept in %s", time.Since(began).Seconds(), dir)
	return nil
}
