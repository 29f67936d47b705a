package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDefaultServerIsWhereTheAgentListens(t *testing.T) {
	for listen, want := range map[string]string{
		"":                  "http://127.0.0.1:9604",
		":9605":             "http://127.0.0.1:9605",
		"0.0.0.0:9605":      "http://127.0.0.1:9605",
		"[::]:9605":         "http://127.0.0.1:9605",
		"10.0.0.5:9605":     "http://10.0.0.5:9605",
		"[fd00::5]:9605":    "http://[fd00::5]:9605",
		"[fe80::5%eth0]:80": "http://[fe80::5%25eth0]:80",
		"localhost:9605":    "http://localhost:9605",
	} {
		if got := defaultServer(listen); got != want {
			t.Errorf("ROUTEFENCE_LISTEN=%s: %s, want %s", listen, got, want)
		}
	}
}

// TestWatchKeepsItsStreamClean: what reads -o json reads documents and nothing else.
func TestWatchKeepsItsStreamClean(t *testing.T) {
	for _, output := range []string{"json", "yaml"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked > 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
			_, _ = w.Write([]byte(`{"phase":"Blocked"}`))
		}))
		defer s.Close()
		var out, errs bytes.Buffer
		if err := (statusFlags{output: output, server: s.URL, watch: true}).run(ctx, &out, &errs); err != nil {
			t.Error(err)
		}
		if text := out.String(); !strings.Contains(text, "Blocked") || strings.Contains(text, "unreachable") {
			t.Errorf("-o %s: printed %q", output, text)
		}
		if !strings.Contains(errs.String(), "agent unreachable: ") {
			t.Errorf("-o %s: on stderr %q", output, errs.String())
		}
	}
}

// TestUnprintableStateIsAnError: an agent's state that is valid JSON and no valid YAML.
func TestUnprintableStateIsAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{\"phase\": \"Blocked\", \"ready\": true, \"message\": \"\x7f\"}"))
	}))
	defer s.Close()
	var out, errs bytes.Buffer
	if err := (statusFlags{output: "yaml", server: s.URL}).run(t.Context(), &out, &errs); err == nil {
		t.Errorf("no error, printed %q", out.String())
	}
}
