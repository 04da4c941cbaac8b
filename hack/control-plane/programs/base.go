//go:build !without_base

package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials that a kubeconfig may name
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the API server's /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// The programs that KUBEBUILDER_ASSETS contains, as for envtest. They are nine tenths of the build.
func init() {
	programs["etcd"] = func() { etcdmain.Main(os.Args) }
	programs["kube-apiserver"] = func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) }
	programs["kubectl"] = func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	}
}
