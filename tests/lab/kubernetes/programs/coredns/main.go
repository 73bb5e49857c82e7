// CoreDNS with the two plugins that cluster DNS needs; its own main links sixty.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"errors", "kubernetes"}
	coremain.Run()
}
