package shoot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/routefence/routefence/policy"
)

// The fields of each kind that name node networks. Gardener writes spec at first and status once the infrastructure is there;
// while the two differ, nodes may have addresses of either.
var (
	shootFields          = []string{"spec.networking.nodes", "status.networking.nodes"}
	infrastructureFields = []string{"status.nodesCIDR", "status.networking.nodes"}
)

// collector gathers one Reading from any number of documents.
type collector struct {
	got     Reading
	seen    map[netip.Prefix]bool
	places  map[Field]bool
	objects int
	// named counts the places that named a network.
	named int
	// uncut says that the end is there: the text closed every bracket.
	uncut bool
	// unnamed are complaints of objects that name nothing; ignored are kinds nobody asked for.
	unnamed []error
	ignored []string
}

// reading returns what was gathered, or why it is nothing.
func (c *collector) reading() (Reading, error) {
	switch {
	case len(c.got.Networks) > 0:
		for _, err := range c.unnamed {
			c.got.Warnings = append(c.got.Warnings, err.Error())
		}
		return c.got, nil
	case len(c.got.Problems) > 0:
		return Reading{}, fmt.Errorf("no valid network: %w", joined(append(c.unnamed, c.got.Problems...)))
	case len(c.unnamed) > 0:
		return Reading{}, joined(c.unnamed)
	case len(c.ignored) > 0:
		return Reading{}, fmt.Errorf("no Shoot, Cluster or Infrastructure of Gardener, but %s", strings.Join(c.ignored, ", "))
	}
	return Reading{}, errors.New("empty: neither an object nor a network in it")
}

// document takes one document of a stream: an object, a sequence of networks, or a text in list form.
func (c *collector) document(d any) {
	switch d := d.(type) {
	case nil:
	case string:
		c.list("", d)
	case []any:
		for i, item := range d {
			c.listItem(fmt.Sprintf("[%d]", i), item)
		}
	case map[string]any, map[any]any, yaml.MapSlice:
		c.object(d, "", "")
	default:
		c.problem(fmt.Errorf("%s, want an object or a list of networks", describe(d)))
	}
}

func (c *collector) listItem(at string, item any) {
	switch item := item.(type) {
	case nil:
	case string:
		c.list(at, item)
	default:
		c.problem(fmt.Errorf("%s: %s, want a network", at, describe(item)))
	}
}

// object takes one object. Items of a typed list carry no kind of their own; then it is that of the list.
func (c *collector) object(o any, kind, version string) {
	if own := text(o, "kind"); own != "" {
		kind, version = own, text(o, "apiVersion")
	}
	switch {
	case kind == "List", known(strings.TrimSuffix(kind, "List"), version) && strings.HasSuffix(kind, "List"):
		c.items(o, strings.TrimSuffix(kind, "List"), version)
	case known(kind, version):
		c.known(o, kind, version)
	case kind == "":
		c.ignore("an object without kind")
	default:
		c.ignore(strings.TrimSpace(version + " " + kind))
	}
}

func (c *collector) items(o any, kind, version string) {
	items, err := lookUp(o, "items")
	list, ok := items.([]any)
	if err != nil || (!ok && items != nil) {
		c.problem(fmt.Errorf("items: %s, want a list", describe(items)))
		return
	}
	for _, item := range list {
		c.object(item, kind, version)
	}
	if len(list) == 0 {
		c.ignore("an empty list")
	}
}

// known reports whether an object is one of Gardener's. Others have kinds named Cluster and Infrastructure too, so the group
// counts; the version does not, and objects written by hand may have neither.
func known(kind, version string) bool {
	group, _, _ := strings.Cut(version, "/")
	switch kind {
	case "Shoot":
		return version == "" || group == "core.gardener.cloud"
	case "Cluster", "Infrastructure":
		return version == "" || group == "extensions.gardener.cloud"
	}
	return false
}

// known takes an object of a known kind.
func (c *collector) known(o any, kind, version string) {
	c.objects++
	c.kind(kind)
	if !slices.Contains([]string{"", "v1beta1", "v1alpha1"}, version[strings.Index(version, "/")+1:]) {
		c.warn(fmt.Sprintf("%s has the unknown version %s; its node networks were read as in v1beta1", kind, version))
	}
	name := identity(o, kind)
	// What the API server wrote has a uid and keeps its fields; what people write by hand says what it says.
	if uid, _ := lookUp(o, "metadata.uid"); !c.uncut && uid != nil {
		c.got.shape.add(name, o)
	}
	switch kind {
	case "Shoot":
		c.fields(name, "", o, shootFields)
	case "Infrastructure":
		c.fields(name, "", o, infrastructureFields)
	case "Cluster":
		c.cluster(name, o)
	}
}

// cluster takes the Shoot that gardenlet copies into the Cluster object.
func (c *collector) cluster(name string, o any) {
	const at = "spec.shoot"
	switch shoot, err := lookUp(o, at); {
	case err != nil:
		c.problem(fmt.Errorf("%s: %w", name, err))
	case shoot == nil:
		c.unnamed = append(c.unnamed, fmt.Errorf("%s: %s is null or missing, so it names no node network", name, at))
	case !isMapping(shoot):
		c.problem(fmt.Errorf("%s: %s: %s, want an object", name, at, describe(shoot)))
	default:
		c.fields(name, at+".", shoot, shootFields)
	}
}

// fields takes the networks that the fields at the paths name. All of them count: see shootFields.
func (c *collector) fields(object, within string, o any, paths []string) {
	named, bad := c.named, len(c.got.Problems)
	for _, path := range paths {
		value, err := lookUp(o, path)
		if err != nil {
			c.problem(fmt.Errorf("%s%w", within, err))
			continue
		}
		c.value(Field{Object: object, Path: within + path}, value)
	}
	if c.named == named && len(c.got.Problems) == bad {
		c.unnamed = append(c.unnamed, fmt.Errorf("%s names no node network: looked at %s", object,
			within+strings.Join(paths, " and "+within)))
	}
}

// value takes the networks of one field, which is a string in some versions and a list of strings in others.
func (c *collector) value(f Field, value any) {
	items, isItems := value.([]any)
	if !isItems {
		items = []any{value}
	}
	for i, item := range items {
		at := f.Path
		if isItems {
			at = fmt.Sprintf("%s[%d]", f.Path, i)
		}
		switch item := item.(type) {
		case nil:
		case string:
			networks, warnings, problems := policy.ParseList(item)
			c.take(f, at, networks, warnings, problems)
		default:
			c.problem(fmt.Errorf("%s: %s, want a network or a list of networks", at, describe(item)))
		}
	}
}

// take adds what was found in a field; at names the exact place for messages.
func (c *collector) take(f Field, at string, networks []netip.Prefix, warnings []string, problems []error) {
	if c.seen == nil {
		c.seen = make(map[netip.Prefix]bool)
	}
	for _, p := range networks {
		if !c.seen[p] {
			c.seen[p] = true
			c.got.Networks = append(c.got.Networks, p)
		}
	}
	if len(networks) > 0 {
		c.named++
		c.field(f)
	}
	for _, w := range warnings {
		c.warn(strings.TrimSpace(at + " " + w))
	}
	for _, err := range problems {
		if at != "" {
			err = fmt.Errorf("%s %w", at, err)
		}
		c.problem(err)
	}
}

func (c *collector) field(f Field) {
	if c.places == nil {
		c.places = make(map[Field]bool)
	}
	if !c.places[f] {
		c.places[f] = true
		c.got.Fields = append(c.got.Fields, f)
	}
}

// mostComplaints bounds each list of complaints; see policy.ParseList.
const mostComplaints = 100

func (c *collector) problem(err error) {
	if len(c.got.Problems) < mostComplaints {
		c.got.Problems = append(c.got.Problems, err)
	}
}

func (c *collector) warn(text string) {
	if len(c.got.Warnings) < mostComplaints && !slices.Contains(c.got.Warnings, text) {
		c.got.Warnings = append(c.got.Warnings, text)
	}
}

func (c *collector) ignore(what string) {
	if len(c.ignored) < mostComplaints && !slices.Contains(c.ignored, what) {
		c.ignored = append(c.ignored, what)
	}
}

func (c *collector) kind(kind string) {
	switch {
	case c.got.Kind == "":
		c.got.Kind = kind
	case !slices.Contains(strings.Split(c.got.Kind, "+"), kind):
		c.got.Kind += "+" + kind
	}
}
