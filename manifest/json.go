package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// rewriteJSON writes changed values into JSON that otherwise stays in its order, and as it was indented.
func rewriteJSON(text string, before, after map[string]any) (string, error) {
	start := strings.IndexByte(text, '{')
	end := strings.LastIndexByte(text, '}') + 1
	head, body, tail := text[:start], text[start:end], text[end:]
	made, err := changeObject([]byte(body), before, after)
	if err != nil {
		return "", fmt.Errorf("change the JSON object: %w", err)
	}
	for _, indent := range []string{"  ", "    ", "\t", ""} {
		if style := indented([]byte(body), indent); style == strings.ReplaceAll(body, "\r\n", "\n") {
			return head + indented(made, indent) + tail, nil
		}
	}
	return head + string(made) + tail, nil
}

// indented is compact for no indentation.
func indented(data []byte, indent string) string {
	var out bytes.Buffer
	var err error
	if indent == "" {
		err = json.Compact(&out, data)
	} else {
		err = json.Indent(&out, data, "", indent)
	}
	if err != nil {
		return ""
	}
	return out.String()
}

// changeObject returns the object with its members in their order, and new ones at the end.
func changeObject(data []byte, before, after map[string]any) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var members [][]byte
	add := func(key string, value []byte) {
		members = append(members, slices.Concat(encodeJSON(key), []byte(":"), value))
	}
	for d.More() {
		var raw json.RawMessage
		key, err := d.Token()
		if err == nil {
			err = d.Decode(&raw)
		}
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		is, stays := after[name]
		if !stays {
			continue
		}
		value, err := changeValue(raw, before[name], is)
		if err != nil {
			return nil, err
		}
		add(name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, had := before[name]; !had {
			add(name, encodeJSON(after[name]))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), nil
}

func changeValue(raw json.RawMessage, before, after any) ([]byte, error) {
	if reflect.DeepEqual(before, after) {
		return raw, nil
	}
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			return changeObject(raw, before, after)
		}
	case []any:
		if before, ok := before.([]any); ok {
			return changeList(raw, before, after)
		}
	}
	return encodeJSON(after), nil
}

func changeList(raw json.RawMessage, before, after []any) ([]byte, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	out := make([][]byte, len(after))
	for i, item := range after {
		was := slices.IndexFunc(before, func(b any) bool { return reflect.DeepEqual(b, item) })
		if was < 0 {
			was = slices.IndexFunc(before, func(b any) bool { return sameName(b, item) })
		}
		if was < 0 && len(before) == len(after) {
			was = i
		}
		if was < 0 {
			out[i] = encodeJSON(item)
			continue
		}
		var err error
		if out[i], err = changeValue(items[was], before[was], item); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]byte("["), bytes.Join(out, []byte(",")), []byte("]")), nil
}

// encodeJSON leaves <, > and & as they are: manifests are no web pages.
func encodeJSON(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Errorf("encode what was decoded: %w", err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
