package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"time"
)

const resources = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[
{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]}]}`

const nodeMetrics = `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[
{"metadata":{"name":%q},"timestamp":%q,"window":"10s","usage":{"cpu":"100m","memory":"100Mi"}}]}`

// metrics serves what "kubectl top node" asks for, with made-up figures for one node.
func metrics(args []string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	log.Print("metrics: started")
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "here") })
	go func() { log.Fatal(http.ListenAndServe(":8080", plain)) }()
	api := http.NewServeMux()
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}
	api.HandleFunc("/apis/metrics.k8s.io/v1beta1", answer(resources))
	api.HandleFunc("/apis/metrics.k8s.io/v1beta1/nodes", func(w http.ResponseWriter, r *http.Request) {
		answer(fmt.Sprintf(nodeMetrics, args[0], time.Now().UTC().Format(time.RFC3339)))(w, r)
	})
	server := &http.Server{Addr: ":8443", Handler: api, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	return server.ListenAndServeTLS("", "")
}

// selfSigned is enough for an APIService with insecureSkipTLSVerify.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
