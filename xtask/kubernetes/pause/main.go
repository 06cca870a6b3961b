// What the sandbox of a pod runs: it holds the namespaces, reaps what pods leave behind where they share one PID namespace,
// and ends when it is told to.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	// Children of before the first signal.
	reap()
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// Reaps every child that has ended: one signal may stand for several.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 {
			return
		}
	}
}
