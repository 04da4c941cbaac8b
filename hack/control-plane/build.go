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

// The module is embedded in the launcher, so the launcher builds the same programs from any working directory.
//
//go:embed go.mod go.sum programs/*.go
var module embed.FS

// All programs are links to this one, which runs as the program whose name it is called by.
const allInOne = "programs"

// The build tag that leaves out the base programs.
const withoutBase = "without_base"

// How long a build takes, by tag.
var duration = map[string]string{"": "on two cores it needs 5 to 11 minutes.", withoutBase: "it needs a half of the time of all programs."}

var (
	// Programs that KUBEBUILDER_ASSETS must contain, as for envtest.
	basePrograms = []string{"etcd", "kube-apiserver", "kubectl"}
	// Programs that only some clusters need.
	otherPrograms = []string{"controllers", "kwok"}
)

// assets has the paths of the programs by name, and the folder with the base programs.
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

// programs returns the programs that a cluster with these options needs.
func (o options) programs() []string {
	if len(o.controllers()) > 0 {
		return slices.Concat(basePrograms, otherPrograms)
	}
	return basePrograms
}

// ensureAssets finds the programs in KUBEBUILDER_ASSETS or the cache, and builds those that are in neither.
func ensureAssets(ctx context.Context, opts options, wanted []string) (*assets, error) {
	a := &assets{paths: map[string]string{}}
	missing, tag := wanted, ""
	if given := os.Getenv("KUBEBUILDER_ASSETS"); given != "" {
		dir, err := filepath.Abs(given)
		if err != nil {
			return nil, err
		}
		a.dir, tag = dir, withoutBase
		for _, name := range basePrograms {
			// A wrong folder is reported as an error. Otherwise the launcher would build for minutes.
			if !isProgram(filepath.Join(dir, name)) {
				return nil, fmt.Errorf("KUBEBUILDER_ASSETS is %s, which has no %s; unset the variable to have the programs built", given, name)
			}
		}
		missing = a.look(dir, wanted)
	}
	if len(missing) == 0 {
		return a, nil
	}

	cache, err := cacheFolder(tag)
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
	missing = a.look(cache, missing) // another process may have built them while it held the lock
	if len(missing) > 0 {
		if err := compile(ctx, opts, cache, tag); err != nil {
			return nil, err
		}
		if still := a.look(cache, missing); len(still) > 0 {
			return nil, fmt.Errorf("go build succeeded, but did not create %s", still[0])
		}
	}
	return a, nil
}

// built returns the names of the programs that a build with a tag creates.
func built(tag string) []string {
	if tag == withoutBase {
		return otherPrograms
	}
	return slices.Concat(basePrograms, otherPrograms)
}

// look records the programs that a folder contains, and returns the names of those that are missing.
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

// linkerFlags returns the flags that set the version of Kubernetes in go.mod. Without a version, clients refuse the
// server.
func linkerFlags() (string, error) {
	goMod, err := module.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	v := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)`).FindSubmatch(goMod)
	if v == nil {
		return "", errors.New("go.mod does not require k8s.io/kubernetes")
	}
	const pkg = "k8s.io/component-base/version"
	return fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, v[1], pkg, v[2], pkg, v[3]), nil
}

// cacheFolder returns the folder of the programs. Its name is a hash of everything that determines what is built.
func cacheFolder(tag string) (string, error) {
	flags, err := linkerFlags()
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s/%s\n%s\n%s\n", runtime.GOOS, runtime.GOARCH, flags, tag)
	for _, file := range []string{"go.sum", "programs/main.go", "programs/base.go", "programs/controllers.go"} {
		data, err := module.ReadFile(file)
		if err != nil {
			return "", err
		}
		key.Write(data)
	}
	dir := filepath.Join(base, "relaybook", "control-plane", fmt.Sprintf("%x", key.Sum(nil))[:16])
	return dir, os.MkdirAll(dir, 0o755)
}

// lockFolder waits until no other process builds in a folder. The lock is released when its process ends.
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

// compile builds the programs in a temporary folder and renames the result, so that other processes never see an
// incomplete program.
func compile(ctx context.Context, opts options, dir, tag string) error {
	// Left by processes that were killed. While we hold the lock, no other process builds.
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
	args := []string{"build", "-v", "-mod=readonly", "-buildvcs=false", "-tags", tag, "-ldflags", flags, "-o", out, "./programs"}

	began := time.Now()
	opts.say("control-plane: building %s from their Go modules.", strings.Join(built(tag), ", "))
	opts.say("control-plane: this happens once; %s", duration[tag])
	cmd := exec.Command("go", args...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var packages atomic.Int64
	var words []string // other output of go, without the packages: downloads, errors
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
			// Kill the whole process group. Otherwise the compilers that go started keep running.
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
	for _, name := range built(tag) {
		link := filepath.Join(dir, name)
		if err := os.Symlink(allInOne, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	opts.say("control-plane: built in %.0f s; kept in %s", time.Since(began).Seconds(), dir)
	return nil
}
