package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const patience = time.Minute

// node is a Dunlin process with one node.
type node struct {
	command *exec.Cmd
	nats    string
	http    string
	done    chan struct{}
}

// place has the addresses and the data directory of a node. If data is empty, the node is not in a cluster.
type place struct {
	name, nats    string
	http          string
	data, cluster string
	join, token   string
}

func startNode(config *nodeConfig, at place, dir string) (*node, error) {
	lines := []string{`listen = "off"`, fmt.Sprintf("nats.listen = %q", at.nats)}
	keep := func(key, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("%s = %q", key, value))
		}
	}
	keep("http.listen", at.http)
	keep("data_dir", at.data)
	keep("cluster.listen", at.cluster)
	keep("cluster.join", at.join)
	keep("cluster.token_file", at.token)
	if config.users != "" {
		users := filepath.Join(dir, at.name+".users")
		if err := os.WriteFile(users, []byte(config.users), 0o600); err != nil {
			return nil, err
		}
		keep("auth.users_file", users)
	}
	file := filepath.Join(dir, at.name+".toml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"+config.toml), 0o600); err != nil {
		return nil, err
	}
	command := exec.Command(dunlin(), "serve", "--config", file)
	// If the shim is killed, the node ends, too.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	started := &node{command: command, done: make(chan struct{})}
	reader := bufio.NewReader(output)
	line, err := reader.ReadString('\n')
	for _, word := range strings.Fields(line) {
		if address, is := strings.CutPrefix(word, "nats="); is {
			started.nats = address
		}
		if address, is := strings.CutPrefix(word, "http="); is {
			started.http = address
		}
	}
	go func() {
		io.Copy(io.Discard, reader)
		command.Wait()
		close(started.done)
	}()
	if started.nats == "" {
		started.kill()
		return nil, fmt.Errorf("the node did not start: %q: %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return started, nil
}

func dunlin() string {
	if program := os.Getenv("DUNLIN"); program != "" {
		return program
	}
	return "dunlin"
}

func (n *node) wait() { <-n.done }
func (n *node) end()  { n.command.Process.Signal(syscall.SIGTERM) }
func (n *node) kill() {
	n.command.Process.Kill()
	<-n.done
}

// nodes are the Dunlin nodes that replace one nats-server.
type nodes struct {
	all     []*node
	address string
	// fronts are listeners that pass connections to several nodes.
	fronts []net.Listener
}

// end closes the shared listeners, and sends all nodes a signal to end.
func (n *nodes) end() {
	for _, front := range n.fronts {
		front.Close()
	}
	for _, one := range n.all {
		one.end()
	}
}

func (n *nodes) kill() {
	for _, one := range n.all {
		one.kill()
	}
}

// startNodes starts the nodes that replace one nats-server: a single node, SUITE_NODES nodes behind one port, or a
// member of the cluster that the options configure.
func startNodes(opts *server.Options, config *nodeConfig, dir string) (*nodes, error) {
	port := opts.Port
	if port == server.RANDOM_PORT {
		port = 0
	} else if port == 0 {
		port = server.DEFAULT_PORT
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if opts.Cluster.Port != 0 {
		return alone(startMember(opts, config, address, dir))
	}
	count, _ := strconv.Atoi(os.Getenv("SUITE_NODES"))
	if count <= 1 {
		all, err := alone(startNode(config, place{name: "node", nats: address, http: webSocketAddress(opts)}, dir))
		if err == nil && opts.Host == "0.0.0.0" {
			// For nats-server, this address includes the addresses of IPv6. Machines without IPv6 have no ::1.
			_, port, _ := net.SplitHostPort(all.address)
			all.inTurn(net.JoinHostPort("::1", port), func(one *node) string { return one.nats })
		}
		return all, err
	}
	return startCluster(count, config, address, webSocketAddress(opts), dir)
}

func alone(one *node, err error) (*nodes, error) {
	if err != nil {
		return nil, err
	}
	return &nodes{all: []*node{one}, address: one.nats}, nil
}

// webSocketAddress returns the address for NATS over WebSocket, which Dunlin serves at its HTTP port.
func webSocketAddress(opts *server.Options) string {
	switch port := opts.Websocket.Port; {
	case port == 0:
		return ""
	default:
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(max(port, 0)))
	}
}

// startCluster starts the nodes of a cluster behind one port. Connections to the port go to each node in turn.
func startCluster(count int, config *nodeConfig, address, webSocket, dir string) (*nodes, error) {
	all := &nodes{}
	var first string
	token := filepath.Join(dir, "token")
	for number := 1; number <= count; number++ {
		cluster, err := freeAddress()
		if err != nil {
			return all, err
		}
		name := fmt.Sprintf("node%d", number)
		at := place{name: name, nats: "127.0.0.1:0", data: filepath.Join(dir, name), cluster: cluster}
		if webSocket != "" {
			at.http = "127.0.0.1:0"
		}
		if number == 1 {
			first = cluster
			if err := initCluster(at); err != nil {
				return all, err
			}
		} else {
			at.join, at.token = first, token
		}
		one, err := startNode(config, at, dir)
		if err != nil {
			return all, err
		}
		all.all = append(all.all, one)
		if number == 1 {
			if err := writeToken(at.data, token); err != nil {
				return all, err
			}
		}
	}
	var err error
	all.address, err = all.inTurn(address, func(one *node) string { return one.nats })
	if err == nil && webSocket != "" {
		_, err = all.inTurn(webSocket, func(one *node) string { return one.http })
	}
	return all, err
}

// inTurn listens at the address, and passes each connection to the next node.
func (n *nodes) inTurn(address string, of func(*node) string) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	n.fronts = append(n.fronts, listener)
	go func() {
		for next := 0; ; next++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go join(client, of(n.all[next%len(n.all)]))
		}
	}()
	return listener.Addr().String(), nil
}

// join connects to a node, and copies bytes in both directions until both directions have ended.
func join(client net.Conn, address string) {
	defer client.Close()
	node, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		io.Copy(node, client)
		node.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(client, node)
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// initCluster creates a cluster in the data directory of the cluster's first node.
func initCluster(first place) error {
	out, err := exec.Command(dunlin(), "cluster", "init", "--data-dir", first.data, "--address", first.cluster).CombinedOutput()
	if err != nil {
		return fmt.Errorf("no cluster: %w: %s", err, out)
	}
	return nil
}

func writeToken(data, file string) error {
	token, err := exec.Command(dunlin(), "cluster", "token", "--reusable", "--data-dir", data).Output()
	if err != nil {
		return fmt.Errorf("no join token: %w", err)
	}
	if err := os.WriteFile(file+".new", token, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// startMember starts a node of the cluster whose members are the routes in the options. The node with the lowest
// cluster port creates the cluster, but no node with a random port and a route to another node does. The other nodes
// read its join token from a file that has this port in its name. A restarted node uses its earlier data directory.
func startMember(opts *server.Options, config *nodeConfig, address, dir string) (*node, error) {
	random := opts.Cluster.Port < 0
	if random {
		free, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(free)
		opts.Cluster.Port, _ = strconv.Atoi(port)
	}
	var ports []int
	if !random || len(opts.Routes) == 0 {
		ports = append(ports, opts.Cluster.Port)
	}
	for _, route := range opts.Routes {
		if port, err := strconv.Atoi(route.Port()); err == nil {
			ports = append(ports, port)
		}
	}
	first := slices.Min(ports)
	kept := func(port int, what string) string {
		return filepath.Join(suiteDir(), fmt.Sprintf("member-%d.%s", port, what))
	}
	own := opts.Cluster.Port
	if own == first {
		forget(first)
	}
	if err := os.WriteFile(kept(own, fmt.Sprintf("of-%d", first)), nil, 0o600); err != nil {
		return nil, err
	}
	at := place{name: "node", nats: address, http: webSocketAddress(opts), data: kept(own, "data")}
	at.cluster = net.JoinHostPort("127.0.0.1", strconv.Itoa(own))
	if own != first {
		at.join = net.JoinHostPort("127.0.0.1", strconv.Itoa(first))
		at.token = kept(first, "token")
		if err := until(func() bool { _, err := os.Stat(at.token); return err == nil }); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(at.data); own == first && errors.Is(err, os.ErrNotExist) {
		if err := initCluster(at); err != nil {
			return nil, err
		}
	}
	one, err := startNode(config, at, dir)
	if err == nil && own == first {
		err = writeToken(at.data, kept(own, "token"))
	}
	return one, err
}

// forget removes the files of a cluster if none of its members runs, because later tests use the same ports again.
func forget(first int) {
	marks, _ := filepath.Glob(filepath.Join(suiteDir(), fmt.Sprintf("member-*.of-%d", first)))
	for _, mark := range marks {
		port := strings.TrimPrefix(strings.Split(filepath.Base(mark), ".")[0], "member-")
		if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			conn.Close()
			return
		}
	}
	for _, mark := range marks {
		member := strings.TrimSuffix(mark, filepath.Ext(mark))
		os.RemoveAll(member + ".data")
		os.Remove(member + ".token")
		os.Remove(mark)
	}
}

func until(holds func() bool) error {
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the first node of the cluster made no join token")
		}
	}
	return nil
}
