package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
	"github.com/synadia-io/orbit.go/ntf/api"
)

// tester is a NATS service that starts servers for the tests of nats.go. The tests reach the service through a Dunlin
// node, whose URL they read from TESTER_NATS_URL. Instead of nats-server, the service starts the shim.
type tester struct {
	shim      string
	nodes     int
	dir       string
	home      *node
	conn      *nats.Conn
	instances map[string]*instance
	requests  chan func()
}

type instance struct {
	kind, description string
	dir               string
	servers           []*testServer
}

type testServer struct {
	api.ManagedServer
	render  *rendered
	dir     string
	routes  []int
	own     int
	process *exec.Cmd
}

// rendered has the values of variables in the tests' configuration texts.
type rendered struct {
	ServerName, ServerDir, StoreDir, ClusterName string
	ClientPort                                   int
	Ports                                        map[string]int
	TLS                                          *tlsPaths
	TLSBlock                                     string
}

type tlsPaths struct{ CAFile, CertFile, KeyFile string }

func startTester(shim string, nodes int, dir string) (*tester, error) {
	home, err := startNode(&nodeConfig{}, place{name: "tester", nats: "127.0.0.1:0"}, dir)
	if err != nil {
		return nil, err
	}
	t := &tester{shim: shim, nodes: nodes, dir: dir, home: home, instances: map[string]*instance{}}
	if t.conn, err = nats.Connect("nats://" + home.nats); err != nil {
		home.kill()
		return nil, err
	}
	// The kernel kills a process when the thread that started it ends. Therefore, one thread handles all requests.
	t.requests = make(chan func())
	service, err := micro.AddService(t.conn, micro.Config{Name: "tester", Version: "1.0.0"})
	if err != nil {
		return nil, err
	}
	for subject, answer := range map[string]func([]byte) (any, error){
		"create.server":        t.createServer,
		"create.cluster":       t.createCluster,
		"create.super-cluster": unsupported("super-clusters"),
		"stop.server":          t.stopServer,
		"start.server":         t.startServer,
		"update.server":        t.updateServer,
		"reload.server":        unsupported("reload of a server's configuration file"),
		"status":               t.status,
		"list":                 t.list,
		"destroy":              t.destroy,
		"reset":                t.reset,
	} {
		handler := micro.HandlerFunc(func(request micro.Request) {
			done := make(chan struct{})
			t.requests <- func() {
				defer close(done)
				response, err := answer(request.Data())
				if err != nil {
					request.Error("500", err.Error(), nil)
				} else {
					request.RespondJSON(response)
				}
			}
			<-done
		})
		name := strings.ReplaceAll(subject, ".", "-")
		if err := service.AddEndpoint(name, handler, micro.WithEndpointSubject("tester."+subject)); err != nil {
			return nil, err
		}
	}
	return t, t.conn.Flush()
}

func (t *tester) url() string {
	_, port, _ := net.SplitHostPort(t.home.nats)
	return "nats://localhost:" + port
}

func (t *tester) close() {
	for id := range t.instances {
		t.remove(id)
	}
	t.conn.Close()
	t.home.kill()
}

func unsupported(what string) func([]byte) (any, error) {
	return func([]byte) (any, error) { return nil, errors.New("excluded: " + what) }
}

func (t *tester) createServer(data []byte) (any, error) {
	request, err := read[api.CreateServerRequest](data)
	if err != nil {
		return nil, err
	}
	return t.create("server", 1, request.JetStream, request.Description, request.Snippets, request.Template, request.TLS)
}

func (t *tester) createCluster(data []byte) (any, error) {
	request, err := read[api.CreateClusterRequest](data)
	if err != nil {
		return nil, err
	}
	return t.create("cluster", request.Servers, request.JetStream, request.Description, request.Snippets, request.Template, request.TLS)
}

func (t *tester) create(kind string, count int, jetStream bool, description string, snippets map[string]string, body string, tls *api.TLSOptions) (any, error) {
	if jetStream {
		return nil, errors.New("excluded: JetStream")
	}
	if body != "" {
		return nil, errors.New("a configuration of the test's own is not supported")
	}
	id := nuid.Next()
	short := id[len(id)-8:]
	one := &instance{kind: kind, description: description, dir: filepath.Join(t.dir, short)}
	if err := os.MkdirAll(one.dir, 0o700); err != nil {
		return nil, err
	}
	t.instances[id] = one
	response := api.CreateResponse{ID: id, Description: description, Kind: kind}
	var paths *tlsPaths
	var block string
	if tls != nil {
		var err error
		if paths, block, response.TLS, err = makeTLS(tls, one.dir); err != nil {
			return nil, err
		}
	}
	var routes []int
	for range count {
		if count > 1 {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			routes = append(routes, port)
		}
	}
	slices.Sort(routes)
	for number := range count {
		server := &testServer{routes: routes, dir: filepath.Join(one.dir, fmt.Sprintf("n%d", number+1))}
		server.Name = fmt.Sprintf("%s-n%d", short, number+1)
		var err error
		if server.Port, err = freePort(); err != nil {
			return nil, err
		}
		if count > 1 {
			server.own, server.Cluster = routes[number], "dunlin"
		}
		server.render = &rendered{ServerName: server.Name, ServerDir: server.dir, StoreDir: server.dir, ClusterName: server.Cluster,
			ClientPort: server.Port, Ports: map[string]int{}, TLS: paths, TLSBlock: block}
		one.servers = append(one.servers, server)
		if err := t.configure(server, snippets); err != nil {
			return nil, err
		}
		if err := t.start(server); err != nil {
			return nil, err
		}
		response.Servers = append(response.Servers, &server.ManagedServer)
	}
	return response, nil
}

// configure writes the configuration file for nats-server.
func (t *tester) configure(server *testServer, snippets map[string]string) error {
	var file strings.Builder
	fmt.Fprintf(&file, "server_name: %q\nport: %d\n%s\n", server.Name, server.Port, server.render.TLSBlock)
	if len(server.routes) > 0 {
		fmt.Fprintf(&file, "cluster { name: dunlin, port: %d, routes: [\n", server.own)
		for _, route := range server.routes {
			fmt.Fprintf(&file, "nats://127.0.0.1:%d\n", route)
		}
		file.WriteString("] }\n")
	}
	for _, key := range slices.Sorted(maps.Keys(snippets)) {
		if key == "mqtt" || key == "leafnode" {
			return fmt.Errorf("excluded: %s", key)
		}
		if key == "websocket" && server.render.Ports[key] == 0 {
			port, err := freePort()
			if err != nil {
				return err
			}
			server.render.Ports[key], server.Ports = port, server.render.Ports
		}
		text, err := template.New(key).Parse(snippets[key])
		if err != nil {
			return err
		}
		if err := text.Execute(&file, server.render); err != nil {
			return err
		}
		file.WriteString("\n")
	}
	if err := os.MkdirAll(server.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(server.config(), []byte(file.String()), 0o600)
}

func (s *testServer) config() string { return filepath.Join(s.dir, "server.conf") }

func (t *tester) start(server *testServer) error {
	command := exec.Command(t.shim, "-c", server.config())
	command.Args[0] = "nats-server"
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Env = append(os.Environ(), "SUITE_DIR="+filepath.Dir(server.dir), "SUITE_NODES="+strconv.Itoa(t.nodes))
	output, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	server.process = command
	ready, last := make(chan bool, 1), ""
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if line := lines.Text(); strings.Contains(line, "Server is ready") {
				ready <- true
			} else {
				last = line
				fmt.Fprintln(os.Stderr, server.Name+":", line)
			}
		}
		ready <- false
	}()
	select {
	case is := <-ready:
		server.Running = is
	case <-time.After(patience):
	}
	if !server.Running {
		t.stop(server)
		return fmt.Errorf("server %s did not start: %s", server.Name, last)
	}
	return nil
}

func (t *tester) stop(server *testServer) {
	if server.process == nil {
		return
	}
	server.process.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(5*time.Second, func() { server.process.Process.Kill() })
	server.process.Wait()
	killer.Stop()
	server.process, server.Running = nil, false
}

func (t *tester) named(data []byte) (*testServer, error) {
	request, err := read[api.StopServerRequest](data)
	if err != nil {
		return nil, err
	}
	for _, one := range t.instances {
		for _, server := range one.servers {
			if server.Name == request.Name {
				return server, nil
			}
		}
	}
	return nil, errors.New("no such server")
}

func (t *tester) stopServer(data []byte) (any, error) {
	server, err := t.named(data)
	if err != nil {
		return nil, err
	}
	t.stop(server)
	return api.StopServerResponse{Shutdown: true}, nil
}

func (t *tester) startServer(data []byte) (any, error) {
	server, err := t.named(data)
	if err != nil {
		return nil, err
	}
	return api.StartServerResponse{Started: true}, t.start(server)
}

func (t *tester) updateServer(data []byte) (any, error) {
	request, err := read[api.UpdateServerRequest](data)
	if err != nil {
		return nil, err
	}
	server, err := t.named(data)
	if err != nil {
		return nil, err
	}
	return api.UpdateServerResponse{Updated: true}, t.configure(server, request.Snippets)
}

func (t *tester) status(data []byte) (any, error) {
	request, err := read[api.StatusRequest](data)
	if err != nil {
		return nil, err
	}
	var response api.StatusResponse
	for id, one := range t.instances {
		if request.InstanceID != "" && request.InstanceID != id {
			continue
		}
		status := api.InstanceStatus{ID: id, Description: one.description, Kind: one.kind}
		for _, server := range one.servers {
			status.Servers = append(status.Servers, server.ManagedServer)
		}
		response.Instances = append(response.Instances, status)
	}
	return response, nil
}

func (t *tester) list([]byte) (any, error) {
	var response api.ListResponse
	for id, one := range t.instances {
		summary := api.InstanceSummary{ID: id, Description: one.description, Kind: one.kind, Servers: len(one.servers)}
		response.Instances = append(response.Instances, summary)
	}
	return response, nil
}

func (t *tester) destroy(data []byte) (any, error) {
	request, err := read[api.DestroyRequest](data)
	if err != nil {
		return nil, err
	}
	t.remove(request.InstanceID)
	return api.DestroyResponse{Destroyed: true}, nil
}

func (t *tester) reset([]byte) (any, error) {
	for id := range t.instances {
		t.remove(id)
	}
	return api.ResetResponse{Shutdown: true}, nil
}

func (t *tester) remove(id string) {
	if one := t.instances[id]; one != nil {
		for _, server := range one.servers {
			if server.process != nil {
				server.process.Process.Kill()
				server.process.Wait()
			}
		}
		os.RemoveAll(one.dir)
		delete(t.instances, id)
	}
}

func read[T any](data []byte) (request T, err error) {
	if len(data) > 0 {
		err = json.Unmarshal(data, &request)
	}
	return request, err
}

func freePort() (int, error) {
	address, err := freeAddress()
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(address)
	return strconv.Atoi(port)
}
