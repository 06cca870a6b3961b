// All programs of Kubernetes 1.20 in one binary: the name that it is started by says which one runs.
//
// The main.go beside this directory does the same for newer versions; the calls that it makes are not in 1.20.
package main

import (
	goflag "flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each runs to its end and gives the exit status.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              runProxy,
	"kube-scheduler":          runScheduler,
	"kubeadm":                 runKubeadm,
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return run(kubelet.NewKubeletCommand()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	start, known := programs[name]
	if !known {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "%s: start this binary by the name of one of its programs: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	rand.Seed(time.Now().UnixNano())
	os.Exit(start())
}

// What the main functions of 1.20 do once they have their flags.
func run(command *cobra.Command) int {
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := command.Execute(); err != nil {
		return 1
	}
	return 0
}

func runProxy() int {
	command := proxy.NewProxyCommand()
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	return run(command)
}

func runScheduler() int {
	command := scheduler.NewSchedulerCommand()
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	return run(command)
}

func runKubectl() int {
	command := kubectl.NewDefaultKubectlCommand()
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	return run(command)
}

func runKubeadm() int {
	// It defines the flags of the log, which the other programs' packages have defined already.
	goflag.CommandLine = goflag.NewFlagSet(os.Args[0], goflag.ExitOnError)
	// Ends the process when there is an error.
	kubeadmerrors.CheckErr(kubeadm.Run())
	return 0
}
