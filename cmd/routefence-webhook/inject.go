package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/manifest"
	"github.com/spf13/cobra"
)

func newInject() *cobra.Command {
	var f injectFlags
	var files []string
	var diff bool
	cmd := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Put the fence into manifests",
		Long: `Inject reads manifests (YAML or JSON, any number of documents, Lists too) and prints them with the fence in the pods of
kube-apiserver and vpn-seed-server. Annotations of an object go before the flags; docs/injection.md lists them.

Documents that need no change are printed byte for byte. In the others only the lines that change are: comments, order of keys and blank
lines stay. Where that cannot be, as with anchors, the document is written anew, and a warning says so.

Warnings, and why nothing was done where nothing was, go to standard error. Exit code 1 if an object cannot be fenced; then nothing is printed.`,
		Example: `  kubectl -n shoot--dev--one get deployment,statefulset -o yaml | routefence-webhook inject -f - --image=IMAGE --diff`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.parse()
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return command.Usage("-f: is not given; want a file, or - for standard input")
			}
			i := injector{options: o, warn: cmd.ErrOrStderr()}
			return i.print(cmd, files, diff)
		},
	}
	f.register(cmd.Flags())
	f.registerFixed(cmd.Flags())
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file with manifests, - for standard input (may be repeated)")
	cmd.Flags().BoolVar(&diff, "diff", false, "print what changes instead, as a unified diff")
	return cmd
}

// injector puts the fence into objects, and tells about it.
type injector struct {
	options inject.Options
	warn    io.Writer
	// where is the place of the object in hand, for messages.
	where string
	// fenced counts objects that have the fence now, why the reasons of those that do not.
	fenced int
	why    []string
}

// print puts nothing out unless all could be done.
func (i *injector) print(cmd *cobra.Command, files []string, diff bool) error {
	out, err := i.files(cmd.InOrStdin(), files, diff)
	if err != nil {
		return command.Fail(err)
	}
	i.conclude()
	if _, err := io.WriteString(cmd.OutOrStdout(), out); err != nil {
		return command.Fail(err)
	}
	return nil
}

// files returns what is to be printed for all of them.
func (i *injector) files(stdin io.Reader, names []string, diff bool) (string, error) {
	var all strings.Builder
	for _, name := range names {
		before, err := read(stdin, name)
		if err != nil {
			return "", err
		}
		after, edits, err := i.stream(name, before)
		if err != nil {
			return "", err
		}
		switch {
		case diff:
			text, err := udiff.ToUnified(name, name+" (fenced)", string(before), edits, udiff.DefaultContextLines)
			if err != nil {
				return "", fmt.Errorf("%s: print the difference: %w", name, err)
			}
			all.WriteString(text)
			continue
		case all.Len() > 0:
			// Two files are two documents at least.
			if !strings.HasSuffix(all.String(), "\n") {
				all.WriteString("\n")
			}
			if !strings.HasPrefix(after, "---") {
				all.WriteString("---\n")
			}
		}
		all.WriteString(after)
	}
	return all.String(), nil
}

func read(stdin io.Reader, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	data, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return data, nil
}

// stream returns a file's documents with the fence in them, and the edits that lead there.
func (i *injector) stream(name string, data []byte) (string, []udiff.Edit, error) {
	documents, err := manifest.Split(data)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	var out strings.Builder
	var edits []udiff.Edit
	at, objects := 0, 0
	for _, d := range documents {
		r := manifest.Rewriting{Text: d.Text}
		if d.Object != nil {
			objects++
			i.where = fmt.Sprintf("%s: document %d", name, d.Number)
			if r, err = i.document(d); err != nil {
				return "", nil, fmt.Errorf("%s: %w", i.where, err)
			}
		}
		for _, e := range r.Edits {
			edits = append(edits, udiff.Edit{Start: at + e.Start, End: at + e.End, New: e.New})
		}
		at += len(d.Text)
		out.WriteString(r.Text)
	}
	if objects == 0 {
		return "", nil, fmt.Errorf("%s: holds no object", name)
	}
	return out.String(), edits, nil
}

func (i *injector) document(d manifest.Document) (manifest.Rewriting, error) {
	object, err := i.object(d.Object)
	if err != nil {
		return manifest.Rewriting{}, err
	}
	r, err := d.Rewrite(object)
	if r.Anew {
		i.tell("could not be changed in place (has it anchors?): written anew, without its comments")
	}
	return r, err
}

// object returns it with the fence, and a List with the fence in its items.
func (i *injector) object(o map[string]any) (map[string]any, error) {
	items, ok := o["items"].([]any)
	if kind, _ := o["kind"].(string); !ok || !strings.HasSuffix(kind, "List") {
		return i.single(o)
	}
	out := make(map[string]any, len(o))
	for k, v := range o {
		out[k] = v
	}
	made := make([]any, len(items))
	for n, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d]: is no object", n)
		}
		fenced, err := i.object(adopt(o, object))
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", n, err)
		}
		made[n] = release(fenced, object)
	}
	out["items"] = made
	return out, nil
}

func (i *injector) single(o map[string]any) (map[string]any, error) {
	r, err := inject.Mutate(o, i.options)
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		i.tell(w)
	}
	if r.Outcome == inject.LeftAlone {
		i.why = append(i.why, fmt.Sprintf("%s: %s (%s)", i.where, r.Message, r.Reason))
		return o, nil
	}
	i.fenced++
	return r.Object, nil
}

func (i *injector) tell(warning string) { fmt.Fprintf(i.warn, "warning: %s: %s\n", i.where, warning) }

// conclude says why, if nothing was done.
func (i *injector) conclude() {
	if i.fenced > 0 {
		return
	}
	fmt.Fprintln(i.warn, "note: nothing is fenced:")
	for _, why := range i.why {
		fmt.Fprintf(i.warn, "  %s\n", why)
	}
}
