package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/pki"
	"github.com/routefence/routefence/pki/rotation"
)

// An alert for a metric that is not there never fires.
func TestAlertsKnowTheirMetrics(t *testing.T) {
	rules, err := os.ReadFile("../../manifests/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	families, err := newMetrics(rotation.New(rotation.Options{Plan: pki.Plan{Names: []string{"n"}, Settle: time.Minute}})).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	// There before there is a certificate to speak of.
	known := map[string]bool{prefix + "certificate_expiry_seconds": true}
	outcomes := ""
	for _, f := range families {
		known[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				outcomes += " " + l.GetValue()
			}
		}
	}
	found := regexp.MustCompile(prefix+`\w+`).FindAllString(string(rules), -1)
	if len(found) < 3 {
		t.Errorf("rules speak of %v", found)
	}
	for _, name := range found {
		if !known[name] {
			t.Errorf("no metric %s", name)
		}
	}
	for _, outcome := range strings.Split(regexp.MustCompile(`outcome=~"(.*?)"`).FindStringSubmatch(string(rules))[1], "|") {
		if !strings.Contains(outcomes, outcome) {
			t.Errorf("outcome %s is not there from the start, so its first increase is none", outcome)
		}
	}
}
