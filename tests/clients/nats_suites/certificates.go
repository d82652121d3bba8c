package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/synadia-io/orbit.go/ntf/api"
)

// makeTLS creates a certificate authority, a server certificate and a client certificate. It returns the paths of the
// files, the block for nats-server's configuration that names the files, and the client's settings.
func makeTLS(options *api.TLSOptions, dir string) (*tlsPaths, string, *api.TLSMaterial, error) {
	names := options.SANs
	if len(names) == 0 {
		names = []string{"localhost", "127.0.0.1", "::1"}
	}
	authority, authorityKey, err := issue(nil, nil, nil)
	if err != nil {
		return nil, "", nil, err
	}
	server, serverKey, err := issue(authority, authorityKey, names)
	if err != nil {
		return nil, "", nil, err
	}
	client, clientKey, err := issue(authority, authorityKey, []string{"client"})
	if err != nil {
		return nil, "", nil, err
	}
	paths := &tlsPaths{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem"), filepath.Join(dir, "key.pem")}
	key, err := keyPEM(serverKey)
	if err != nil {
		return nil, "", nil, err
	}
	ca := certificatePEM(authority)
	for file, text := range map[string]string{paths.CAFile: ca, paths.CertFile: certificatePEM(server), paths.KeyFile: key} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, "", nil, err
		}
	}
	mutual := options.Mode != api.TLSModeServer
	material := &api.TLSMaterial{CAPEM: ca}
	if mutual {
		material.ClientCertPEM = certificatePEM(client)
		if material.ClientKeyPEM, err = keyPEM(clientKey); err != nil {
			return nil, "", nil, err
		}
	}
	block := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %t, handshake_first: %t }",
		paths.CertFile, paths.KeyFile, paths.CAFile, mutual, options.HandshakeFirst)
	return paths, block, material, nil
}

// issue creates a certificate for the names, signed by the authority. If authority is nil, it creates an authority's
// self-signed certificate.
func issue(authority *x509.Certificate, authorityKey *ecdsa.PrivateKey, names []string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	draft := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: "nats suites " + number.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if authority == nil {
		draft.IsCA, draft.KeyUsage = true, x509.KeyUsageCertSign
		authority, authorityKey = draft, key
	} else {
		draft.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			draft.IPAddresses = append(draft.IPAddresses, ip)
		} else {
			draft.DNSNames = append(draft.DNSNames, name)
		}
	}
	bytes, err := x509.CreateCertificate(rand.Reader, draft, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(bytes)
	return certificate, key, err
}

func certificatePEM(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}

func keyPEM(key *ecdsa.PrivateKey) (string, error) {
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})), err
}
