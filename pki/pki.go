// Package pki decides about the certificates by which an API server trusts the webhook: when a new authority is made, which ones are
// trusted, and which one signs. Keys and signatures are those of the standard library.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// backdate is how far before its making a certificate is valid: clocks of machines differ, and an API server whose clock is five
// minutes late must not find it invalid.
const backdate = 10 * time.Minute

// Authority is a CA with its key.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// Fingerprint tells authorities apart.
type Fingerprint [sha256.Size]byte

// Fingerprint of the certificate.
func (a Authority) Fingerprint() Fingerprint { return sha256.Sum256(a.Cert.Raw) }

// NewAuthority makes a CA that signs itself.
func NewAuthority(now time.Time, lifetime time.Duration) (Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "routefence-webhook-ca"}, NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	return sign(template, nil)
}

// Issue makes a serving certificate for DNS names. It does not outlive its authority: so whoever trusts all authorities that have
// not expired trusts every certificate that any replica may still serve with.
func (a Authority) Issue(names []string, now time.Time, lifetime time.Duration) (tls.Certificate, error) {
	end := now.Add(lifetime)
	if end.After(a.Cert.NotAfter) {
		end = a.Cert.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	leaf, err := sign(template, &a)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Cert.Raw}, PrivateKey: leaf.key, Leaf: leaf.Cert}, nil
}

// sign makes a key and a certificate for it, signed by itself if by is nil.
func sign(template *x509.Certificate, by *Authority) (Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Authority{}, fmt.Errorf("make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Authority{}, fmt.Errorf("make a serial number: %w", err)
	}
	parent, with := template, crypto.Signer(key)
	if by != nil {
		parent, with = by.Cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), with)
	if err != nil {
		return Authority{}, fmt.Errorf("sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return Authority{cert, key}, err
}

// Bundle is the certificates of authorities as PEM, in their order.
func Bundle(authorities []Authority) []byte {
	var out bytes.Buffer
	for _, a := range authorities {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}

// Encode returns certificates and keys as PEM, in the same order.
func Encode(authorities []Authority) (certs, keys []byte, err error) {
	var out bytes.Buffer
	for _, a := range authorities {
		der, err := x509.MarshalPKCS8PrivateKey(a.key)
		if err != nil {
			return nil, nil, fmt.Errorf("encode a key: %w", err)
		}
		_ = pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: der}) // a buffer takes everything
	}
	return Bundle(authorities), out.Bytes(), nil
}

// Decode reads what Encode wrote.
func Decode(certs, keys []byte) ([]Authority, error) {
	var out []Authority
	for len(bytes.TrimSpace(certs)) > 0 || len(bytes.TrimSpace(keys)) > 0 {
		var cert, key *pem.Block
		cert, certs = pem.Decode(certs)
		key, keys = pem.Decode(keys)
		if cert == nil || key == nil {
			return nil, errors.New("certificates and keys are not PEM, or not as many of the one as of the other")
		}
		pair, err := tls.X509KeyPair(pem.EncodeToMemory(cert), pem.EncodeToMemory(key))
		if err != nil {
			return nil, err
		}
		signer, can := pair.PrivateKey.(crypto.Signer)
		if !can || !pair.Leaf.IsCA {
			return nil, errors.New("a certificate is not that of an authority")
		}
		out = append(out, Authority{pair.Leaf, signer})
	}
	return sorted(out), nil
}

// sorted puts the newest authority first, in the same order at all replicas.
func sorted(authorities []Authority) []Authority {
	slices.SortFunc(authorities, func(a, b Authority) int {
		if c := b.Cert.NotBefore.Compare(a.Cert.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare(a.Cert.Raw, b.Cert.Raw)
	})
	return slices.CompactFunc(authorities, func(a, b Authority) bool { return a.Cert.Equal(b.Cert) })
}

// certificates reads a bundle and leaves out what is none.
func certificates(bundle []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
}
