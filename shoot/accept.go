package shoot

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/ranges"
)

// Accept is the rule for believing a source. It returns what holds once next has been read while last held, and what is
// wrong with next, if anything. Networks that next adds always count. Networks of last go only if next is a positive and
// complete statement: it names some network, every item of it was understood, and its end is there. Objects in a form that has
// no closing mark may be cut at the end of a line: so next must not be just the beginning of last, and of an object that an API
// server wrote no field that named networks may have gone, nor the field that stood last. Else what holds is the union of both. A zero last means that
// nothing is known.
//
// The first return value is the last of the next call.
func Accept(last, next Reading) (Reading, error) {
	if len(next.Networks) == 0 {
		return last, joined(append([]error{errors.New("names no node network")}, next.Problems...))
	}
	problems := next.Problems
	lost := Lost(last, next)
	if len(lost) == 0 {
		return next, joined(problems)
	}
	if reason := incomplete(last, next); reason != "" {
		problems = append([]error{fmt.Errorf("%s; %s stays fenced", reason, join(lost))}, problems...)
	}
	if len(problems) > 0 {
		return Merge(last, next), joined(problems)
	}
	return next, nil
}

// Merge returns last with the networks of next added. Its fields stay those of last, the last complete statement: what only
// an incomplete one said may go again.
func Merge(last, next Reading) Reading {
	out := next
	out.Networks = slices.Clone(last.Networks)
	held := make(map[netip.Prefix]bool, len(last.Networks))
	for _, p := range last.Networks {
		held[p] = true
	}
	for _, p := range next.Networks {
		if !held[p] {
			out.Networks = append(out.Networks, p)
		}
	}
	out.Fields = last.Fields
	out.shape, out.text = last.shape, last.text
	return out
}

// Lost returns the addresses that last names and next does not.
func Lost(last, next Reading) []netip.Prefix {
	return ranges.Of(last.Networks...).Minus(ranges.Of(next.Networks...)).Prefixes()
}

// incomplete says why next may lack a part, or "".
func incomplete(last, next Reading) string {
	if next.Truncated {
		return "the last line does not end, so the rest may be missing (if it is complete, end it with a newline)"
	}
	if len(next.text) > 0 && len(next.text) < len(last.text) && bytes.HasPrefix(last.text, next.text) {
		return "this is the beginning of what was read before, so the rest may be missing"
	}
	fields, objects := make(map[Field]bool), make(map[string]bool)
	for _, f := range next.Fields {
		fields[f], objects[f.Object] = true, true
	}
	// A source that speaks of none of the objects it spoke of was pointed at something else, which is a statement too.
	if !slices.ContainsFunc(last.Fields, func(f Field) bool { return objects[f.Object] }) {
		return ""
	}
	for _, f := range last.Fields {
		if last.shape.has(f.Object) && !fields[f] {
			return fmt.Sprintf("%s of %s named networks before and is gone, so the rest may be missing", f.Path, f.Object)
		}
	}
	if f, gone := next.shape.missesEndOf(last.shape); gone {
		return fmt.Sprintf("%s was the last field of %s and is gone, so the rest may be missing", f.Path, f.Object)
	}
	return ""
}

// join lists prefixes for a message, but not ten thousand of them.
func join(prefixes []netip.Prefix) string {
	const most = 5
	var names []string
	for i, p := range prefixes {
		if i == most {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(prefixes)-most)
		}
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}
