package shoot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/routefence/routefence/policy"
)

// MaxSize is how much Decode reads. A Shoot is well below a megabyte; what is larger is some other file.
const MaxSize = 8 << 20

// Decode reads the node networks out of JSON or YAML objects (one, several documents, or a List), or out of a plain list
// as policy.ParseList takes it. An error means that nothing was named that could be fenced.
func Decode(data []byte) (Reading, error) {
	if len(data) > MaxSize {
		return Reading{}, fmt.Errorf("more than %d bytes, so this is no Shoot and no list of networks", MaxSize)
	}
	text := bytes.TrimPrefix(data, []byte("\uFEFF"))
	if said(string(text)) == "" {
		return Reading{}, errors.New("empty: neither an object nor a network in it")
	}
	c := &collector{}
	if isList(string(text)) {
		c.list("", string(text))
		return c.reading()
	}
	documents, err := parse(text)
	c.uncut = inFlowStyle(text)
	if err != nil {
		return Reading{}, fmt.Errorf("neither YAML, JSON nor a list of networks: %w", err)
	}
	for _, d := range documents {
		c.document(d)
	}
	r, err := c.reading()
	if err == nil && c.objects > 0 && !c.uncut {
		r.Truncated, r.text = text[len(text)-1] != '\n', text
	}
	return r, err
}

// key finds a line that begins with a word and a colon. No list of networks has one: its items begin with a digit or go on
// behind the colon.
var key = regexp.MustCompile(`(?m)^[ \t]*(- +)*["']?[A-Za-z_][\w./-]*["']?[ \t]*:([ \t]|\r?$)`)

// isList decides by the look of the text and not by whether it parses. A Shoot cut short must fail as a broken object;
// read as a list it would hand the pod and service networks to the fence.
func isList(text string) bool {
	text = said(text)
	return !strings.ContainsAny(text[:1], "{}[]\"'-|>%&*!") && !(colonEndsWord(text) && key.MatchString(text))
}

// colonEndsWord spares a list the expression, which takes as long as reading ten thousand networks.
func colonEndsWord(text string) bool {
	for _, after := range []string{" ", "\t", "\r", "\n"} {
		if strings.Contains(text, ":"+after) {
			return true
		}
	}
	return strings.HasSuffix(text, ":")
}

// said is the text without comments and without the blanks around it.
func said(text string) string {
	lines := strings.Split(text, "\n")
	kept := lines[:0]
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		kept = append(kept, line)
	}
	return strings.Trim(strings.Join(kept, "\n"), " \t\r\n\v\f\u00A0\uFEFF\u200B,;")
}

// inFlowStyle reports whether the text closes with a bracket what it opens with one. If its end is missing it cannot be
// parsed.
func inFlowStyle(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// parse returns the documents of a JSON or YAML stream. JSON goes first as it is exact: YAML 1.1 stumbles over some of it.
func parse(text []byte) ([]any, error) {
	if inFlowStyle(text) {
		if documents, err := parseJSON(text); err == nil {
			return documents, nil
		}
	}
	var documents []any
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var d ordered
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, err
		}
		documents = append(documents, d.value)
	}
}

func parseJSON(text []byte) (documents []any, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var d any
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, err
		}
		documents = append(documents, d)
	}
}

// list takes networks from a text in list form; at names its place for messages.
func (c *collector) list(at, text string) {
	networks, warnings, problems := policy.ParseList(text)
	c.kind("list")
	c.take(Field{Object: "list"}, at, networks, warnings, problems)
}
