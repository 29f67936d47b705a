package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDocumentBeforeTheFirstPassHasNoNull(t *testing.T) {
	text, err := json.Marshal(newBench("10.250.0.0/16").document())
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"networks", "sources", "fenced", "tunnels"} {
		if !strings.Contains(string(text), `"`+field+`":[]`) {
			t.Errorf("%s is no empty list in %s", field, text)
		}
	}
}
