// Package manifest changes objects in the text of manifests, YAML or JSON, so that all that stays the same stays so byte for byte:
// comments, order of keys, blank lines, and whole documents.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"
	yamljson "sigs.k8s.io/yaml"
)

// Document is one of a stream.
type Document struct {
	// Number counts from 1, over those that hold something.
	Number int
	// Text is the document with the separator in front of it, if there is one. The texts of all documents make up the stream.
	Text string
	// Object is the decoded JSON of the document, with its numbers as json.Number; nil if it holds nothing but comments.
	Object map[string]any
}

// Split reads a stream of documents.
func Split(stream []byte) ([]Document, error) {
	var out []Document
	line, number := 0, 0
	for _, text := range chunks(string(stream)) {
		d := Document{Text: text}
		if !blank(text) {
			number++
			d.Number = number
			var err error
			if d.Object, err = decode(text); err != nil {
				return nil, fmt.Errorf("document %d (from line %d on): %w", number, line+1, err)
			}
		}
		line += strings.Count(text, "\n")
		out = append(out, d)
	}
	return out, nil
}

// chunks cuts a stream in front of each separator, and JSON values from each other.
func chunks(stream string) []string {
	var out []string
	start := 0
	for at := 0; at < len(stream); {
		end := len(stream)
		if i := strings.IndexByte(stream[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if at > start && separator(stream[at:end]) {
			out = append(out, values(stream[start:at])...)
			start = at
		}
		at = end
	}
	return append(out, values(stream[start:])...)
}

func separator(line string) bool {
	rest, ok := strings.CutPrefix(line, "---")
	return ok && (rest == "" || strings.ContainsAny(rest[:1], " \t\r\n"))
}

// values cuts a chunk of several JSON values, as jq writes them, into one each.
func values(chunk string) []string {
	if !isJSON(chunk) {
		return []string{chunk}
	}
	var out []string
	d := json.NewDecoder(strings.NewReader(chunk))
	last := 0
	for {
		var v json.RawMessage
		if err := d.Decode(&v); errors.Is(err, io.EOF) && len(out) > 0 {
			out[len(out)-1] += chunk[last:]
			return out
		} else if err != nil {
			return []string{chunk} // decode says what is wrong
		}
		out = append(out, chunk[last:d.InputOffset()])
		last = int(d.InputOffset())
	}
}

// isJSON reports whether a text looks like JSON; flow-style YAML does, too.
func isJSON(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }

// blank reports whether a text has nothing but comments, separators and directives.
func blank(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "---"))
		if line != "" && line != "..." && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// decode reads JSON as JSON: it may hold characters that YAML must not.
func decode(text string) (map[string]any, error) {
	var v any
	if plain := strings.TrimPrefix(text, "---"); json.Valid([]byte(plain)) {
		if err := exact(json.NewDecoder(strings.NewReader(plain))).Decode(&v); err != nil {
			return nil, err
		}
	} else if err := yamljson.Unmarshal([]byte(text), &v, exact); err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("is no object")
	}
	return object, nil
}

// exact keeps numbers as they are written: a float holds no integer above 2^53, and would not even show that it was changed.
func exact(d *json.Decoder) *json.Decoder {
	d.UseNumber()
	return d
}

// Rewriting is a document with another object in it.
type Rewriting struct {
	Text string
	// Edits lead from the old text to the new.
	Edits []udiff.Edit
	// Anew says that the text had to be written anew, without comments and in another order, because what changed is written with anchors
	// or in another way that cannot be changed in place.
	Anew bool
}

// Rewrite puts another object into the document.
func (d Document) Rewrite(object map[string]any) (Rewriting, error) {
	// What comes from elsewhere has numbers of other types.
	var after map[string]any
	data, err := json.Marshal(object)
	if err != nil {
		return Rewriting{}, fmt.Errorf("encode the object: %w", err)
	}
	if err := exact(json.NewDecoder(bytes.NewReader(data))).Decode(&after); err != nil {
		return Rewriting{}, fmt.Errorf("decode the object: %w", err)
	}
	if reflect.DeepEqual(d.Object, after) {
		return Rewriting{Text: d.Text}, nil
	}
	if json.Valid([]byte(strings.TrimPrefix(d.Text, "---"))) {
		text, err := rewriteJSON(d.Text, d.Object, after)
		return Rewriting{Text: text, Edits: udiff.Lines(d.Text, text)}, err
	}
	text, err := anew(d.Text, after)
	if err != nil {
		return Rewriting{}, err
	}
	if edits, ok := splice(d.Text, d.Object, after); ok {
		spliced, err := udiff.Apply(d.Text, edits)
		// The proof is in the reading.
		if got, bad := decode(spliced); err == nil && bad == nil && reflect.DeepEqual(got, after) {
			return Rewriting{Text: spliced, Edits: edits}, nil
		}
	}
	return Rewriting{Text: text, Edits: udiff.Lines(d.Text, text), Anew: true}, nil
}

// anew encodes the object behind the old separator. Not every string that can be read can be written.
func anew(old string, object map[string]any) (string, error) {
	data, err := yamljson.Marshal(object)
	if err == nil {
		var got map[string]any
		if got, err = decode(string(data)); err == nil && !reflect.DeepEqual(got, object) {
			err = errors.New("it would read differently")
		}
	}
	if err != nil {
		return "", fmt.Errorf("write the object as YAML: %w", err)
	}
	if first, _, _ := strings.Cut(old, "\n"); separator(first) {
		return "---\n" + string(data), nil
	}
	return string(data), nil
}

// splice returns changes of lines of block-style YAML.
func splice(text string, before, after map[string]any) ([]udiff.Edit, bool) {
	// YAML ends lines by these as well.
	if strings.ContainsAny(strings.ReplaceAll(text, "\r\n", "\n"), "\r\u0085\u2028\u2029") {
		return nil, false
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil || len(root.Content) != 1 {
		return nil, false
	}
	s := newSplicer(text)
	if !s.mapping(root.Content[0], before, after) {
		return nil, false
	}
	return s.inBytes(), true
}

// encodeLines renders a value as lines of block-style YAML.
func encodeLines(value any) []string {
	data, err := yamljson.Marshal(value)
	if err != nil {
		panic(fmt.Errorf("encode what was decoded: %w", err))
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte("\n"))), "\n")
}
