// Package authority makes the certificates of a test: an authority that lays what it signs into a directory as NAME.crt and NAME.key.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// T is what is needed of a test.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Authority signs certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with its own certificate in a directory, which is made if it is not there.
func New(t T, dir, name string) *Authority {
	t.Helper()
	a := &Authority{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.sign(t, name, a.cert)
	return a
}

// Issue signs a certificate for clients and servers, at addresses and names or not. It takes the place of an older one of its name in one
// step, as the kubelet does it.
func (a *Authority) Issue(t T, file string, subject pkix.Name, at ...string) {
	t.Helper()
	template := &x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	for _, host := range at {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	a.sign(t, file, template)
}

// sign makes a key and its certificate. The first is the authority's own, signed by itself.
func (a *Authority) sign(t T, file string, template *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("%v", err)
	}
	with := a.key
	if with == nil {
		with = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), with)
	if err != nil {
		t.Fatalf("certificate %s: %v", file, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatalf("key %s: %v", file, err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		path := filepath.Join(a.dir, file+suffix)
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatalf("%v", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return key
}
