package manifest

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"
)

// splicer collects changes of lines. What it cannot do its methods say by false, and then a larger piece is written anew.
type splicer struct {
	lines []string
	eol   string
	edits []edit
	// open says that the last line has no end.
	open bool
}

// edit replaces lines from start up to, not including, end. Nothing is removed where the two are the same.
type edit struct {
	start, end int
	lines      []string
}

func newSplicer(text string) *splicer {
	s := &splicer{lines: strings.SplitAfter(text, "\n"), eol: "\n"}
	if strings.HasSuffix(s.lines[0], "\r\n") {
		s.eol = "\r\n"
	}
	if last := len(s.lines) - 1; s.lines[last] == "" {
		s.lines = s.lines[:last]
	} else {
		s.open = true
	}
	return s
}

// inBytes returns the edits with their places in the text, in order. What is inserted at a line comes before what replaces it.
func (s *splicer) inBytes() []udiff.Edit {
	slices.SortStableFunc(s.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	offsets := make([]int, len(s.lines)+1)
	for i, l := range s.lines {
		offsets[i+1] = offsets[i] + len(l)
	}
	out := make([]udiff.Edit, len(s.edits))
	for i, e := range s.edits {
		out[i] = udiff.Edit{Start: offsets[e.start], End: offsets[e.end], New: strings.Join(e.lines, "")}
		if e.start == len(s.lines) && s.open {
			// The last line had no end.
			out[i].New = s.eol + strings.TrimSuffix(out[i].New, s.eol)
		}
	}
	return out
}

// put records an edit. The first line starts with lead, the others with as many blanks.
func (s *splicer) put(start, end int, lead string, lines []string) {
	e := edit{start: start, end: end}
	for i, l := range lines {
		if i > 0 && l != "" {
			l = strings.Repeat(" ", len(lead)) + l
		} else if i == 0 {
			l = lead + l
		}
		e.lines = append(e.lines, l+s.eol)
	}
	s.edits = append(s.edits, e)
}

// undo forgets the edits made since there were n, and says false.
func (s *splicer) undo(n int) bool {
	s.edits = s.edits[:n]
	return false
}

func block(n *yaml.Node, kind yaml.Kind) bool {
	return n.Kind == kind && n.Style&yaml.FlowStyle == 0 && n.Tag != "!!merge" && len(n.Content) > 0
}

// mapping changes the entries of a mapping.
func (s *splicer) mapping(n *yaml.Node, before, after map[string]any) bool {
	mark := len(s.edits)
	if !block(n, yaml.MappingNode) || len(n.Content) != 2*len(before) {
		return false
	}
	column := n.Content[0].Column
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		was, known := before[key.Value]
		is, stays := after[key.Value]
		start := key.Line - 1
		end := s.end(start, column, value)
		switch {
		case !known || key.Column != column:
			return s.undo(mark)
		case !stays && s.lead(key) == "":
			return s.undo(mark) // it shares its line with a dash
		case !stays:
			s.put(start, end, "", nil)
		case reflect.DeepEqual(was, is) || s.value(value, was, is):
		default:
			s.put(start, end, s.lines[start][:column-1], encodeLines(map[string]any{key.Value: is}))
		}
	}
	last := n.Content[len(n.Content)-2:]
	end := s.end(last[0].Line-1, column, last[1])
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, had := before[key]; !had {
			s.put(end, end, strings.Repeat(" ", column-1), encodeLines(map[string]any{key: after[key]}))
		}
	}
	return true
}

// lead returns what stands in front of a key if that is blank, with a mark so that nothing is something.
func (s *splicer) lead(key *yaml.Node) string {
	lead := s.lines[key.Line-1][:key.Column-1]
	if strings.TrimSpace(lead) != "" {
		return ""
	}
	return lead + "|"
}

// value changes what stands inside of a value.
func (s *splicer) value(n *yaml.Node, before, after any) bool {
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			return s.mapping(n, before, after)
		}
	case []any:
		if before, ok := before.([]any); ok {
			return s.sequence(n, before, after)
		}
	}
	return false
}

// sequence changes the items of a list. Items are the same if they are equal, or have the same name.
func (s *splicer) sequence(n *yaml.Node, before, after []any) bool {
	if !block(n, yaml.SequenceNode) || len(n.Content) != len(before) {
		return false
	}
	dash := n.Column - 1
	for _, item := range n.Content {
		if line := s.lines[item.Line-1]; len(line) <= dash || line[dash] != '-' {
			return false
		}
	}
	next := 0
	at := func() int { // the line in front of item next
		if next < len(n.Content) {
			return s.above(n.Content[next].Line - 1)
		}
		return s.end(n.Content[next-1].Line-1, n.Column, nil)
	}
	drop := func(until int) {
		for ; next < until; next++ {
			start := n.Content[next].Line - 1
			s.put(start, s.end(start, n.Column, nil), "", nil)
		}
	}
	for _, item := range after {
		i := slices.IndexFunc(before[next:], func(b any) bool { return reflect.DeepEqual(b, item) || sameName(b, item) })
		if i < 0 {
			s.put(at(), at(), strings.Repeat(" ", dash), encodeLines([]any{item}))
			continue
		}
		drop(next + i)
		start := n.Content[next].Line - 1
		if !reflect.DeepEqual(before[next], item) && !s.value(n.Content[next], before[next], item) {
			s.put(start, s.end(start, n.Column, nil), strings.Repeat(" ", dash), encodeLines([]any{item}))
		}
		next++
	}
	drop(len(before))
	return true
}

// sameName tells items of a list apart: by their name, or as objects by kind and metadata.
func sameName(a, b any) bool {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		return false
	}
	metaX, okX := x["metadata"].(map[string]any)
	metaY, okY := y["metadata"].(map[string]any)
	if okX && okY {
		return reflect.DeepEqual([]any{x["kind"], metaX["name"], metaX["namespace"]}, []any{y["kind"], metaY["name"], metaY["namespace"]})
	}
	return x["name"] != nil && reflect.DeepEqual(x["name"], y["name"])
}

// end returns the line behind the entry with that value, or behind the item if there is none, that starts on a line in a column: what
// is indented further belongs to it, and the items of a list that stands right below its key. Comments and blank lines that follow do not.
func (s *splicer) end(start, column int, value *yaml.Node) int {
	end := start + 1
	list := value != nil && value.Kind == yaml.SequenceNode
	for i := start + 1; i < len(s.lines); i++ {
		line := strings.TrimRight(s.lines[i], "\r\n")
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		switch {
		case content == "":
			continue
		case indent >= column, list && indent == column-1 && (content == "-" || strings.HasPrefix(content, "- ")):
			end = i + 1
		case strings.HasPrefix(content, "#"):
			continue
		default:
			return end
		}
	}
	return end
}

// above returns the first line of the comments right above a line.
func (s *splicer) above(line int) int {
	for line > 0 && strings.HasPrefix(strings.TrimSpace(s.lines[line-1]), "#") {
		line--
	}
	return line
}
