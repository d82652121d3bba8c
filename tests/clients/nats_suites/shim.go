package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// shim acts as nats-server: it accepts the same flags, configuration file and signals, prints the same lines on
// standard error, and writes the same file of ports.
func shim(args []string) int {
	fs := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	nothing := func() {}
	opts, err := server.ConfigureOptions(fs, args, nothing, nothing, nothing)
	if err != nil {
		return fatal(err)
	}
	if opts == nil {
		return 0
	}
	config, err := translate(opts)
	if err != nil {
		return fatal(err)
	}
	place, err := os.MkdirTemp(suiteDir(), "server")
	if err != nil {
		return fatal(err)
	}
	defer os.RemoveAll(place)
	nodes, err := startNodes(opts, config, place)
	if nodes != nil {
		defer nodes.kill()
	}
	if err != nil {
		return fatal(err)
	}
	monitoring, err := monitor(opts, nodes.address)
	if err != nil {
		return fatal(err)
	}
	inform("Listening for client connections on %s", nodes.address)
	if at := webSocketAddress(opts); at != "" && nodes.all[0].http != "" {
		scheme := "ws"
		if opts.Websocket.TLSConfig != nil {
			scheme = "wss"
		}
		inform("Listening for websocket clients on %s://%s", scheme, nodes.all[0].http)
	}
	if err := writePorts(opts, nodes, monitoring); err != nil {
		return fatal(err)
	}
	inform("Server is ready")

	ended := make(chan struct{})
	for _, one := range nodes.all {
		go func() {
			one.wait()
			ended <- struct{}{}
		}()
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR2)
	for left := len(nodes.all); left > 0; {
		select {
		case <-signals:
			// A Dunlin node that ends notifies its clients, as nats-server does in lame duck mode.
			nodes.end()
		case <-ended:
			left--
		}
	}
	return 0
}

func suiteDir() string {
	if dir := os.Getenv("SUITE_DIR"); dir != "" {
		return dir
	}
	return os.TempDir()
}

func fatal(err error) int {
	fmt.Fprintf(os.Stderr, "[%d] %s [FTL] %v\n", os.Getpid(), stamp(), err)
	return 1
}

func inform(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%d] %s [INF] %s\n", os.Getpid(), stamp(), fmt.Sprintf(format, args...))
}

func stamp() string { return time.Now().Format("2006/01/02 15:04:05.000000") }

// monitor serves nats-server's HTTP port, at which test suites check whether the server runs.
func monitor(opts *server.Options, address string) (string, error) {
	if opts.HTTPPort == 0 {
		return "", nil
	}
	port := max(opts.HTTPPort, 0)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/varz", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"connect_urls": []string{address}})
	})
	go http.Serve(listener, mux)
	return listener.Addr().String(), nil
}

func writePorts(opts *server.Options, nodes *nodes, monitoring string) error {
	if opts.PortsFileDir == "" {
		return nil
	}
	ports := map[string][]string{"nats": {"nats://" + nodes.address}}
	if monitoring != "" {
		ports["monitoring"] = []string{"http://" + monitoring}
	}
	if opts.Cluster.Port > 0 {
		ports["cluster"] = []string{fmt.Sprintf("nats://127.0.0.1:%d", opts.Cluster.Port)}
	}
	if webSocket := nodes.all[0].http; webSocket != "" {
		ports["websocket"] = []string{"ws://" + webSocket}
	}
	text, err := json.Marshal(ports)
	if err != nil {
		return err
	}
	file := filepath.Join(opts.PortsFileDir, fmt.Sprintf("nats-server_%d.ports", os.Getpid()))
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
