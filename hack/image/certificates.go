package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Certificates by the server name in the TLS handshake.
type certificates map[string]*tls.Certificate

// issue creates a CA and a server certificate for each receiver. It writes the certificate of each CA to NAME.pem.
func issue(folder string) (certificates, error) {
	made := certificates{}
	for _, name := range receivers {
		authority, certificate, err := pair(name)
		if err != nil {
			return nil, err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority})
		if err := write(folder, name+".pem", text); err != nil {
			return nil, err
		}
		made[name+domain] = certificate
	}
	return made, nil
}

func (c certificates) config() *tls.Config {
	return &tls.Config{
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if certificate, ok := c[hello.ServerName]; ok {
				return certificate, nil
			}
			return nil, fmt.Errorf("there is no receiver %q", hello.ServerName)
		},
	}
}

// pair creates a CA, and a server certificate that is signed by it. It returns the certificate of the CA first.
func pair(name string) ([]byte, *tls.Certificate, error) {
	began := time.Now().Add(-time.Hour)
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority of " + name},
		NotBefore:             began,
		NotAfter:              began.AddDate(0, 0, 2),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	receiver := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    began,
		NotAfter:     authority.NotAfter,
		DNSNames:     []string{name + domain},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	receiverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	of, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.CreateCertificate(rand.Reader, receiver, authority, receiverKey.Public(), authorityKey)
	if err != nil {
		return nil, nil, err
	}
	return of, &tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: receiverKey}, nil
}
