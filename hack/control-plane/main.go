// Control-plane builds and runs a real Kubernetes API server on loopback, for tests, for the demo and for trying things out.
//
//	control-plane build
//	control-plane run [--rollouts] [--aggregation] [--quiet] [--human]
//
// Only the standard library is imported, so that the launcher itself compiles in a second; the Kubernetes programs are
// built from the package programs, once, when they are needed. README.md says what works in this cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const usage = `usage:
  control-plane build [--quiet]                                        build what is missing, print the folder with the programs
  control-plane run [--rollouts] [--aggregation] [--quiet] [--human]   run a control plane until stdin ends, a signal, or the parent's end

  --rollouts      also the controllers of Deployments and ReplicaSets, and kwok (a node that runs their pods)
  --aggregation   also the controller of ClusterRoles with an aggregationRule, such as view, edit and admin
  --quiet         say nothing on stderr but errors
  --human         print how to use it instead of a line of JSON
`

// Exit codes, as kubectl has them.
const (
	exitDone    = 0
	exitFailure = 1
	exitUsage   = 2
)

// Children get a parent-death signal, which the kernel sends when the *thread* that made them ends. Go ends threads as
// it likes, but never the main one; so children are started here, and main does nothing else.
var mainThread = make(chan func())

func init() { runtime.LockOSThread() }

func main() {
	exit := make(chan int)
	go func() { exit <- command(os.Args[1:]) }()
	for {
		select {
		case call := <-mainThread:
			call()
		case code := <-exit:
			os.Exit(code)
		}
	}
}

type options struct {
	rollouts, aggregation, quiet, human bool
}

func command(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	var opts options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flags.BoolVar(&opts.quiet, "quiet", false, "")

	var work func(context.Context, options) error
	switch args[0] {
	case "build":
		work = build
	case "run":
		work = run
		flags.BoolVar(&opts.rollouts, "rollouts", false, "")
		flags.BoolVar(&opts.aggregation, "aggregation", false, "")
		flags.BoolVar(&opts.human, "human", false, "")
	case "help", "-h", "--help":
		fmt.Print(usage)
		return exitDone
	default:
		fmt.Fprintf(os.Stderr, "control-plane: unknown command %q\n%s", args[0], usage)
		return exitUsage
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "control-plane: unexpected %q\n%s", flags.Arg(0), usage)
		return exitUsage
	}

	ctx, stop := context.WithCancelCause(context.Background())
	stopOnSignal(stop)
	stopWithParent(stop)
	if err := work(ctx, opts); err != nil {
		var asked stopRequest
		if errors.As(err, &asked) {
			opts.say("control-plane: stopped: %s", asked)
			if args[0] == "build" { // what was asked for has not been done
				return exitFailure
			}
			return exitDone
		}
		fmt.Fprintf(os.Stderr, "control-plane: %s\n", err)
		return exitFailure
	}
	return exitDone
}

// say writes progress; data goes to stdout, words to stderr.
func (o options) say(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// stopRequest is the reason why the launcher was told to end: an ordinary end, not a failure.
type stopRequest string

func (s stopRequest) Error() string { return string(s) }

func stopOnSignal(stop context.CancelCauseFunc) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			stop(stopRequest(s.String()))
		}
	}()
	// A reader of stdout that went away must not kill the launcher before it has cleaned up. Catching the signal turns it
	// into a write error; ignoring it would be inherited by the children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// stopWithParent watches the parent's process id: when the parent dies the launcher is handed to another one. A
// parent-death signal would not do here, for it fires already when the parent's thread ends, which a test's thread does.
func stopWithParent(stop context.CancelCauseFunc) {
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(200 * time.Millisecond)
		}
		stop(stopRequest("the parent process ended"))
	}()
}
