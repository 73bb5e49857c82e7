// The process that keeps a pod's namespaces while its containers come and go.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
