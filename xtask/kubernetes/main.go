// All programs of Kubernetes in one binary: the name that it is started by says which one runs.
//
// Seven programs share nearly all of their code: as one binary they have a third of the size on disk, and a node that runs
// several of them has the code in memory once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each runs to its end and gives the exit status.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubeadm":                 runKubeadm,
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "%s: start this binary by the name of one of its programs: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

func runKubeadm() int {
	// Ends the process when there is an error.
	kubeadmerrors.HandleError(kubeadm.Run())
	return 0
}

func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		// Ends the process.
		kubectlerrors.CheckErr(err)
	}
	return 0
}
