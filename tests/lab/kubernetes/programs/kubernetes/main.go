// One binary for all programs of Kubernetes: they share nine tenths of their code, so
// together they build in a third of the time and take a third of the space.
//
//	kubernetes kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet ...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) > 1 {
		if program, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(cli.Run(program()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-proxy|kube-scheduler|kubelet ...")
	os.Exit(2)
}
