package apiserver

import (
	"context"
	"regexp"
	"strconv"
	"strings"
)

// metric sums the samples of the API server's own metrics whose labels have all the words.
func (s *seed) metric(name string, labels ...string) float64 {
	s.t.Helper()
	data, err := s.typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		s.t.Fatalf("metrics: %v", err)
	}
	sum := 0.0
	for _, line := range regexp.MustCompile(`(?m)^`+name+`\{.*$`).FindAllString(string(data), -1) {
		if _, all := words(line, labels...); !all {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			s.t.Fatalf("metric %s: %v", line, err)
		}
		sum += value
	}
	return sum
}

// lists counts the lists of a resource that were answered. A list of one name counts as GET in the API server's metrics.
func (s *seed) lists(resource string) float64 {
	s.t.Helper()
	const requests, good = "apiserver_request_total", `code="200"`
	return s.metric(requests, `verb="LIST"`, resource, good) + s.metric(requests, `verb="GET"`, resource, good)
}
