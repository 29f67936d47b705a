package e2e

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

	"github.com/routefence/routefence/test/rig"
)

// authority signs certificates and lays them as NAME.crt and NAME.key into a directory.
type authority struct {
	t    rig.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t rig.T, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.sign(name, a.cert, a)
	return a
}

// issue makes a certificate for a name, in organizations or not, at addresses or not.
func (a *authority) issue(file string, subject pkix.Name, at ...string) {
	a.t.Helper()
	template := &x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	for _, host := range at {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	a.sign(file, template, a)
}

func (a *authority) sign(file string, template *x509.Certificate, by *authority) *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatalf("%v", err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	with := by.key
	if with == nil { // an authority signs itself
		with = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), with)
	if err != nil {
		a.t.Fatalf("certificate %s: %v", file, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatalf("key %s: %v", file, err)
	}
	write(a.t, filepath.Join(a.dir, file+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(a.t, filepath.Join(a.dir, file+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
	return key
}

// write writes a file and the directories it needs.
func write(t rig.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}
