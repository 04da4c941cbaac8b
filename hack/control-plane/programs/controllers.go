package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// The default of kube-controller-manager.
const workers = 5

// runControllers runs the controllers of kube-controller-manager that tests and the demo need, with the same settings. They are
// in seven of the 380 packages that only kube-controller-manager has. To compile the rest would take as long as the API server.
func runControllers(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("controllers", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	names := flags.String("controllers", "", "comma-separated names of the controllers to run, as in kube-controller-manager")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	shared := informers.NewSharedInformerFactory(client, 0)
	apps, pods := shared.Apps().V1(), shared.Core().V1().Pods()
	var run []func()
	for name := range strings.SplitSeq(*names, ",") {
		switch name {
		case "deployment-controller":
			c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
			if err != nil {
				return err
			}
			run = append(run, func() { c.Run(ctx, workers) })
		case "replicaset-controller":
			c := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, replicaset.BurstReplicas)
			run = append(run, func() { c.Run(ctx, workers) })
		case "clusterrole-aggregation-controller":
			c := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())
			run = append(run, func() { c.Run(ctx, workers) })
		default:
			return fmt.Errorf("controllers: unknown controller %q", name)
		}
	}
	shared.Start(ctx.Done())
	var running sync.WaitGroup
	for _, work := range run {
		running.Go(work)
	}
	running.Wait()
	return nil
}
