package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials are created for each run, before the API server starts. So the kubeconfig is known at once, and stays
// valid when the API server restarts.
type credentials struct {
	ca                       []byte // PEM
	certFile, keyFile        string // of the API server
	serviceAccountKeyFile    string
	tokenFile                string
	adminToken, limitedToken string
}

func makeCredentials(dir string) (*credentials, error) {
	c := &credentials{
		certFile:              filepath.Join(dir, "apiserver.crt"),
		keyFile:               filepath.Join(dir, "apiserver.key"),
		serviceAccountKeyFile: filepath.Join(dir, "service-account.key"),
		tokenFile:             filepath.Join(dir, "tokens.csv"),
		adminToken:            randomToken(),
		limitedToken:          randomToken(),
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "control-plane authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER})

	files := map[string][]byte{
		c.certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER}),
		// admin is bound to cluster-admin through its group. limited has no permissions until a test binds a role to it.
		c.tokenFile: fmt.Appendf(nil, "%s,admin,admin,\"system:masters\"\n%s,limited,limited\n", c.adminToken, c.limitedToken),
	}
	for file, key := range map[string]*ecdsa.PrivateKey{c.keyFile: serverKey, c.serviceAccountKeyFile: accountKey} {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		files[file] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	for file, data := range files {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// kubeconfig has a context for each of the two users; admin is the current one.
func (c *credentials) kubeconfig(server string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: admin
clusters:
- name: control-plane
  cluster:
    server: %s
    certificate-authority-data: %s
contexts:
- name: admin
  context: {cluster: control-plane, user: admin}
- name: limited
  context: {cluster: control-plane, user: limited}
users:
- name: admin
  user: {token: %s}
- name: limited
  user: {token: %s}
`, server, base64.StdEncoding.EncodeToString(c.ca), c.adminToken, c.limitedToken)
}

func randomToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}
