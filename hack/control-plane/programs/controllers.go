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

// As kube-controller-manager has it by default.
const workers = 5

// runControllers runs those controllers of kube-controller-manager that somebody here needs, as it runs them. Of its 380 packages that
// no other program has, these are seven; the rest would take as long to compile as the API server.
func runControllers(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("controllers", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	names := flags.String("controllers", "", "which controllers run, by the names that kube-controller-manager has for them, with commas")
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
			return fmt.Errorf("controllers: there is no %q here", name)
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
