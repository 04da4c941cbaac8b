// Programs contains etcd, kube-apiserver, kubectl, kwok and the controllers of a rollout. It runs as the program whose name it is
// called by. One program needs half the build time and a third of the space of five. With the build tag without_base it contains only
// kwok and the controllers.
//
// The launcher builds it. Each program does the same as its own main package, except for `controllers`: see controllers.go.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

// The programs by name. base.go adds those that the build tag leaves out.
var programs = map[string]func(){
	"controllers": func() { end(runControllers(stopped(), os.Args[1:])) },
	"kwok":        func() { end(runKwok(stopped())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	run, found := programs[name]
	if !found {
		end(fmt.Errorf("%s is not a program of the control plane", name))
	}
	run()
}

// stopped returns a context that SIGINT and SIGTERM cancel.
func stopped() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	return ctx
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runKwok does the same as the main function of kwok, in which some flags determine the others.
func runKwok(ctx context.Context) error {
	// The flags that the other programs have added do not belong to kwok, which has its own --version.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
