package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/crypto/argon2"
)

// metaBytes is the size that a record may have in addition to its payload (docs/listeners.md, Limits).
const metaBytes = 64 << 10

// nodeConfig has a node's configuration, without addresses and directories, and the text of its users file.
type nodeConfig struct {
	toml  string
	users string
}

// translate converts nats-server's options to Dunlin's configuration.
func translate(opts *server.Options) (*nodeConfig, error) {
	var lines []string
	set := func(key string, value any) { lines = append(lines, fmt.Sprintf("%s = %v", key, value)) }
	quoted := func(key, value string) { set(key, strconv.Quote(value)) }
	payload := int(opts.MaxPayload)
	if payload == 0 {
		payload = server.MAX_PAYLOAD_SIZE
	}
	if opts.ServerName != "" {
		quoted("name", opts.ServerName)
	}
	quoted("limits.record_bytes", strconv.Itoa(payload+metaBytes))
	if opts.MaxConn > 0 {
		set("limits.connections", opts.MaxConn)
	}
	if opts.MaxSubs > 0 {
		set("limits.subscriptions", opts.MaxSubs)
	}
	if opts.PingInterval > 0 {
		quoted("nats.ping_interval", opts.PingInterval.String())
	}
	if opts.MaxPingsOut > 0 {
		set("nats.pings_max", opts.MaxPingsOut)
	}
	tls, err := tlsOf(opts)
	if err != nil {
		return nil, err
	}
	if tls != nil {
		quoted("tls.cert", tls.cert)
		quoted("tls.key", tls.key)
		if tls.verify {
			quoted("tls.client_ca", tls.ca)
		}
		if tls.first {
			set("nats.tls_first", true)
		}
	}
	return &nodeConfig{toml: strings.Join(lines, "\n") + "\n", users: users(opts)}, nil
}

type tlsFiles struct {
	cert, key, ca string
	verify, first bool
}

// tlsOf reads the names of the TLS files from the configuration file, because the options have only the files'
// contents.
func tlsOf(opts *server.Options) (*tlsFiles, error) {
	if opts.TLSCert != "" {
		return &tlsFiles{opts.TLSCert, opts.TLSKey, opts.TLSCaCert, opts.TLSVerify, opts.TLSHandshakeFirst}, nil
	}
	if opts.ConfigFile == "" || opts.TLSConfig == nil {
		return nil, nil
	}
	all, err := conf.ParseFile(opts.ConfigFile)
	if err != nil {
		return nil, err
	}
	tls, _ := all["tls"].(map[string]any)
	text := func(name string) string {
		value, _ := tls[name].(string)
		return value
	}
	verify, _ := tls["verify"].(bool)
	return &tlsFiles{text("cert_file"), text("key_file"), text("ca_file"), verify, opts.TLSHandshakeFirst}, nil
}

// users returns the text of the users file; empty if clients need no credentials.
func users(opts *server.Options) string {
	var file strings.Builder
	if opts.NoAuthUser != "" {
		return ""
	}
	if opts.Username != "" {
		user(&file, opts.Username, fmt.Sprintf("password = %q", hashed(opts.Password)), nil)
	}
	if opts.Authorization != "" {
		digest := sha256.Sum256([]byte(opts.Authorization))
		user(&file, "token", fmt.Sprintf(`tokens = ["sha256:%x"]`, digest), nil)
	}
	for _, one := range opts.Users {
		user(&file, one.Username, fmt.Sprintf("password = %q", hashed(one.Password)), one.Permissions)
	}
	for number, one := range opts.Nkeys {
		user(&file, fmt.Sprintf("nkey%d", number), fmt.Sprintf("nkeys = [%q]", one.Nkey), one.Permissions)
	}
	return file.String()
}

func user(file *strings.Builder, name, proof string, permissions *server.Permissions) {
	fmt.Fprintf(file, "[users.%q]\n%s\n", name, proof)
	list := func(key string, subjects []string) {
		if len(subjects) > 0 {
			words := make([]string, len(subjects))
			for at, subject := range subjects {
				words[at] = strconv.Quote(subject)
			}
			fmt.Fprintf(file, "%s = [%s]\n", key, strings.Join(words, ", "))
		}
	}
	of := func(key string, of *server.SubjectPermission) {
		allow, deny := []string{">"}, []string(nil)
		if of != nil {
			deny = of.Deny
			if len(of.Allow) > 0 {
				allow = of.Allow
			}
		}
		list(key, allow)
		list(key+"_deny", deny)
	}
	if permissions == nil {
		permissions = &server.Permissions{}
	}
	groups := []string{">"}
	if subscribe := permissions.Subscribe; subscribe != nil {
		// In nats-server's configuration, "SUBJECT GROUP" allows subscriptions of this queue group only. Dunlin has a
		// list of groups for all subjects of a user.
		var subjects, named []string
		for _, subject := range subscribe.Allow {
			subject, group, is := strings.Cut(subject, " ")
			subjects = append(subjects, subject)
			if is {
				named = append(named, group)
			}
		}
		permissions.Subscribe = &server.SubjectPermission{Allow: subjects, Deny: subscribe.Deny}
		if len(named) > 0 {
			groups = named
		}
	}
	of("publish", permissions.Publish)
	of("subscribe", permissions.Subscribe)
	list("groups", groups)
}

// hashed returns the hash of a password, in the format of `dunlin user add`.
func hashed(password string) string {
	const memory, rounds = 19456, 2
	salt := []byte("a salt of 16 by.")
	hash := argon2.IDKey([]byte(password), salt, rounds, memory, 1, 32)
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=1$%s$%s", memory, rounds, text(salt), text(hash))
}
