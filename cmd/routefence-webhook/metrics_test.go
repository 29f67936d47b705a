package main

import (
	"net/http"
	"net/http/httptest"
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
	page := httptest.NewRecorder()
	newFigures(rotation.New(rotation.Options{Plan: pki.Plan{Names: []string{"n"}, Settle: time.Minute}})).handler().
		ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := page.Body.String()
	// There before there is a certificate to speak of.
	known := map[string]bool{prefix + "certificate_expiry_seconds": true}
	for _, f := range regexp.MustCompile(`(?m)^# TYPE (\w+)`).FindAllStringSubmatch(text, -1) {
		known[f[1]] = true
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
		if !strings.Contains(text, `outcome="`+outcome+`"} 0`) {
			t.Errorf("outcome %s is not there from the start, so its first increase is none", outcome)
		}
	}
}
