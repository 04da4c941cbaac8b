// Control-plane builds and runs a real Kubernetes API server on loopback, for tests, for the demo and for trying things out.
//
//	control-plane build
//	control-plane run [--rollouts] [--aggregation] [--quiet] [--human]
//
// The launcher imports only the standard library, so it compiles in a second. The Kubernetes programs are built once,
// from the package programs, when they are needed. README.md describes what works in this cluster.
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
  control-plane run [--rollouts] [--aggregation] [--quiet] [--human]   run a control plane until stdin ends, a signal comes, or the parent ends

  --rollouts      also run the controllers of Deployments and ReplicaSets, and kwok (which simulates a node for their pods)
  --aggregation   also run the controller of ClusterRoles with an aggregationRule, such as view, edit and admin
  --quiet         print only errors on stderr
  --human         print instructions for people instead of a line of JSON
`

// Exit codes, as kubectl has them.
const (
	exitDone    = 0
	exitFailure = 1
	exitUsage   = 2
)

// Children get a parent-death signal. The kernel sends it when the *thread* that started them ends. Go may end any
// thread except the main one, so the main thread starts the children and does nothing else.
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
			if args[0] == "build" { // the programs have not been built
				return exitFailure
			}
			return exitDone
		}
		fmt.Fprintf(os.Stderr, "control-plane: %s\n", err)
		return exitFailure
	}
	return exitDone
}

// say writes progress to stderr. Data goes to stdout.
func (o options) say(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// stopRequest is the reason for a requested stop, which is not a failure.
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
	// If the reader of stdout is gone, SIGPIPE must not kill the launcher before it has cleaned up. If the signal is
	// caught, the write returns an error. If it were ignored, the children would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// stopWithParent stops the launcher when the id of its parent process changes, which happens when the parent dies. A
// parent-death signal does not work here. It is also sent when only the thread that started the launcher ends, as the
// thread of a test does.
func stopWithParent(stop context.CancelCauseFunc) {
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(200 * time.Millisecond)
		}
		stop(stopRequest("the parent process ended"))
	}()
}
